// What an answer brings along: events for the page, and the pointer's right not to lose its button.
import { fire } from "./live.js";
import { toast } from "./toasts.js";

// Listened for on the request itself: htmx tells the element that asked, and a live refresh may have replaced it.
document.addEventListener("htmx:beforeSend", ({ detail }) => {
  const { xhr, requestConfig, target } = detail;
  const isAsked = requestConfig.verb !== "get" || target.id === "dialog-content"; // not a refresh in the background
  xhr.addEventListener("load", () => {
    const told = xhr.getResponseHeader("X-Pilothouse-Events");
    if (told) tell(JSON.parse(told));
    else if (isAsked && xhr.status >= 400 && ![401, 409, 422].includes(xhr.status)) {
      const id = xhr.getResponseHeader("x-request-id");
      toast({ text: `The console answered ${xhr.status}.${id ? ` Request ${id}.` : ""}`, role: "fail" });
    }
  });
  xhr.addEventListener("error", () => {
    if (isAsked) toast({ text: "The console cannot be reached. Nothing was changed.", role: "fail" });
  });
});

function tell(events) {
  for (const [name, value] of Object.entries(events)) {
    fire(name, value);
  }
}

// A refresh between press and release would swallow the click: it waits for the release.
let pressed = null;
let missed = false;

document.addEventListener("pointerdown", ({ target }) => { pressed = target; });
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => {
    // The click comes after the release.
    setTimeout(() => {
      pressed = null;
      if (missed) fire("live:resync");
      missed = false;
    }, 50);
  });
}
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const isRefresh = detail.requestConfig.verb === "get" && detail.target.hasAttribute?.("hx-trigger");
  if (!isRefresh || !pressed?.isConnected || !detail.target.contains(pressed)) return;
  detail.shouldSwap = false;
  missed = true;
});
