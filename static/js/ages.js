// Ages grow between two refreshes; the words are those of the server's own filter.
const STEPS = [[60, "s", 1], [3600, "min", 60], [86400, "h", 3600], [Infinity, "d", 86400]];

function words(seconds) {
  const [, unit, divisor] = STEPS.find(([below]) => seconds < below);
  return `${Math.floor(seconds / divisor)} ${unit}`;
}

setInterval(() => {
  if (document.hidden) return;
  for (const place of document.querySelectorAll("time[data-age]")) {
    const seconds = Math.max(0, (Date.now() - Date.parse(place.dateTime)) / 1000);
    const text = words(seconds) + (place.dataset.age === "since" ? "" : " ago");
    if (place.textContent !== text) place.textContent = text;
  }
}, 1000);

// Time left counts down to zero and then waits for the server's word.
setInterval(() => {
  for (const place of document.querySelectorAll("[data-until]")) {
    const left = Math.max(0, (Date.parse(place.dataset.until) - Date.now()) / 1000);
    place.textContent = left > 0 ? `${words(left)} left` : "any moment";
  }
}, 1000);
