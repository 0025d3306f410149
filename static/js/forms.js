// Small conveniences of forms: choices that submit themselves, the theme without a reload, changed cells that fade.
document.addEventListener("change", (event) => {
  const chosen = event.target.closest("[data-submits]");
  if (chosen) chosen.form.requestSubmit();
});

document.addEventListener("click", async (event) => {
  const choice = event.target.closest("[data-theme-choice]");
  if (!choice) return;
  event.preventDefault();
  document.documentElement.dataset.theme = choice.value;
  document.querySelector("meta[name=color-scheme]").content = choice.value === "system" ? "light dark" : choice.value;
  for (const one of document.querySelectorAll("[data-theme-choice]")) {
    one.setAttribute("aria-pressed", String(one === choice));
  }
  document.dispatchEvent(new Event("theme:changed"));
  const form = new FormData(choice.form);
  form.set("theme", choice.value);
  await fetch(choice.form.action, { method: "POST", body: form, headers: { "HX-Request": "true" } });
});

document.getElementById("form-errors")?.focus();

// A cell whose words changed with a refresh fades from a tint for one second.
let before = new Map();
const cells = (within) => within.querySelectorAll("[data-cell]");
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  before = new Map([...cells(detail.target)].map((cell) => [cell.dataset.cell, cell.textContent.trim()]));
});
document.addEventListener("htmx:afterSettle", ({ target }) => {
  for (const cell of cells(target.isConnected ? target : document)) {
    const was = before.get(cell.dataset.cell);
    if (was !== undefined && was !== cell.textContent.trim()) cell.classList.add("fresh");
  }
  before = new Map();
});
