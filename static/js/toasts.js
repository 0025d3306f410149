// What was done, with Undo for ten seconds. Errors stay until they are closed.
const box = document.getElementById("toasts");
const LASTS_MS = 10_000;

function button(label, kind) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "button";
  made.dataset.kind = kind;
  made.dataset.size = "small";
  made.textContent = label;
  return made;
}

export function toast({ text, role = "ok", undo = null }) {
  const made = document.createElement("div");
  made.className = "toast";
  made.dataset.role = role;
  made.setAttribute("role", role === "fail" ? "alert" : "status");
  const words = document.createElement("span");
  words.textContent = text;
  made.append(words);
  if (undo) {
    const back = button(undo.label, "primary");
    back.addEventListener("click", () => {
      made.remove();
      window.htmx.ajax("POST", undo.url, { source: document.body, swap: "none" });
    });
    made.append(back);
  }
  const close = button("Close", "plain");
  close.addEventListener("click", () => made.remove());
  made.append(close);
  box.append(made);
  if (role !== "fail") setTimeout(() => made.remove(), LASTS_MS);
}

document.body.addEventListener("toast", ({ detail }) => toast(detail));
for (const made of document.querySelectorAll(".toast:not([data-role=fail])")) {
  setTimeout(() => made.remove(), LASTS_MS);
}
document.addEventListener("click", (event) => {
  event.target.closest("[data-closes-toast]")?.closest(".toast").remove();
});

// Changes of state are announced, at most one sentence in five seconds; numbers never are.
const announce = document.getElementById("announce");
let saidAt = 0;
let waiting = 0;
let spoken = new Map();

function states() {
  return new Map([...document.querySelectorAll("[data-says]")].map((one) => [one.id, one.dataset.says]));
}

spoken = states();
document.addEventListener("htmx:afterSettle", () => {
  const now = states();
  const news = [...now].filter(([id, words]) => spoken.has(id) && spoken.get(id) !== words).map(([, words]) => words);
  spoken = now;
  if (!news.length) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    saidAt = Date.now();
    announce.textContent = news.at(-1);
  }, Math.max(0, 5000 - (Date.now() - saidAt)));
});
