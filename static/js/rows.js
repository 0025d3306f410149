// Rows never change places under the pointer or the focus: a bar says how many would, and Refresh lets them.
import { fire } from "./live.js";

let takesOrder = false;

const idsOf = (within) => [...within.querySelectorAll("tbody > tr[id]")].map((row) => row.id);

document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const section = detail.target;
  if (!section.hasAttribute?.("data-keeps-order") || detail.xhr.status !== 200) return;
  const held = section.matches(":hover") || section.contains(document.activeElement);
  if (takesOrder || !held) return;
  const coming = new DOMParser().parseFromString(detail.serverResponse, "text/html");
  const body = coming.querySelector("tbody");
  if (!body) return;
  const before = idsOf(section).filter((id) => coming.getElementById(id));
  const after = idsOf(coming).filter((id) => before.includes(id));
  const moved = before.filter((id, at) => after[at] !== id).length;
  if (!moved) return;
  // New rows come last until the reader asks for the true order.
  for (const id of before.toReversed()) body.prepend(coming.getElementById(id));
  const bar = coming.querySelector("[data-reorder]");
  bar.hidden = false;
  bar.querySelector("span").textContent = `${moved} changed order`;
  detail.serverResponse = coming.body.innerHTML;
});

// Only what was really swapped in fulfils the wish: a swap may have waited for the pointer.
document.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target.hasAttribute?.("data-keeps-order")) takesOrder = false;
});

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-takes-order]")) return;
  takesOrder = true;
  fire("live:resync");
});
