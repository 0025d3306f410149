// Keyboard: single letters outside of fields, off when the person says so (WCAG 2.1.4).
import { openJump } from "./jump.js";

const GOING_MS = 1200;
let goingUntil = 0;

const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;
const anyDialog = () => document.querySelector("dialog[open]");

function lines() {
  return [...document.querySelectorAll("main [data-line]")].filter((line) => line.offsetParent !== null);
}

// Real focus, never a remembered number: what is focused is what Enter opens.
function step(by) {
  const all = lines();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next].focus();
}

function go(letter) {
  const entry = document.querySelector(`#rail a[data-letter="${CSS.escape(letter)}"]`);
  if (entry) entry.click();
}

const ONE = {
  "/": openJump,
  "?": () => document.getElementById("keys").showModal(),
  g: () => { goingUntil = Date.now() + GOING_MS; },
  j: () => step(1),
  k: () => step(-1),
  ".": () => document.querySelector("main [data-verbs] :is(a, button)")?.focus(),
  X: () => document.querySelector("main [data-stops]")?.click(),
};

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openJump();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || anyDialog()) return;
  if (!document.documentElement.hasAttribute("data-keys")) return;
  if (Date.now() < goingUntil) {
    goingUntil = 0;
    event.preventDefault();
    go(event.key);
    return;
  }
  const act = ONE[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
