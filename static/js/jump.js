// Jump: one combobox over services, rollouts, pages and verbs. The server matches, with the reader's own rights.
import { openPreview } from "./dialogs.js";

const dialog = document.getElementById("jump");
const input = document.getElementById("jump-input");
const list = document.getElementById("jump-list");
let chosen = -1;
let asked = 0;

export function openJump() {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  input.value = "";
  input.focus();
  search();
}

async function search() {
  const turn = ++asked;
  const answer = await fetch(`${input.dataset.url}?q=${encodeURIComponent(input.value)}`, {
    headers: { "HX-Request": "true" },
  }).catch(() => null);
  if (turn !== asked) return; // a later question was asked meanwhile
  if (!answer?.ok) {
    const line = document.createElement("li");
    line.className = "empty";
    line.textContent = "Jump cannot reach the console.";
    list.replaceChildren(line);
    return;
  }
  list.innerHTML = await answer.text(); // rendered and escaped by our own server
  choose(options().length ? 0 : -1);
}

const options = () => [...list.querySelectorAll("[role=option]")];

function choose(index) {
  chosen = index;
  options().forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
  const option = options()[index];
  if (option) {
    input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  } else input.removeAttribute("aria-activedescendant");
}

function take(option) {
  if (!option) return;
  dialog.close();
  if (option.hasAttribute("data-dialog")) openPreview(option.dataset.url);
  else location.assign(option.dataset.url);
}

let typing = 0;
input?.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, 120);
});
input?.addEventListener("keydown", (event) => {
  const all = options();
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const by = event.key === "ArrowDown" ? 1 : -1;
    if (all.length) choose((chosen + by + all.length) % all.length);
  } else if (event.key === "Enter") {
    event.preventDefault();
    take(all[chosen]);
  }
});
list?.addEventListener("click", (event) => take(event.target.closest("[role=option]")));
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-opens-jump]")) return;
  event.preventDefault();
  openJump();
});
