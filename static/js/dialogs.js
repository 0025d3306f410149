// Native dialogs. A link to a preview opens it here; the same link is a page without JavaScript.
const dialog = document.getElementById("dialog");
let opener = null;

/** Fetch a preview and show it. */
export function openPreview(url) {
  opener = document.activeElement;
  window.htmx.ajax("GET", url, { target: "#dialog-content", swap: "innerHTML" });
}

function showModal() {
  if (dialog.open) return;
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const preview = event.target.closest("a[data-preview]");
  if (preview && window.htmx && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openPreview(preview.href);
    return;
  }
  const opens = event.target.closest("[data-opens]");
  if (opens) document.getElementById(opens.dataset.opens)?.showModal();
  const closes = event.target.closest("[data-closes]");
  if (closes) document.getElementById(closes.dataset.closes)?.close();
  if (event.target.closest("[data-cancel]") && dialog?.open) {
    event.preventDefault();
    dialog.close();
  }
  // A click on the backdrop lands on the dialog itself.
  if (event.target instanceof HTMLDialogElement) event.target.close();
});

document.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.id !== "dialog-content") return;
  showModal();
  // Cancel has the focus: Enter must not confirm by accident. After an error the error's field has it.
  (dialog.querySelector("[aria-invalid=true]") ?? dialog.querySelector("[data-cancel]"))?.focus();
});

// Enter in a line of text would submit the form: in a preview it does not.
dialog?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("input")) event.preventDefault();
  if ((event.key === "Enter" || event.key === " ") && event.target.matches("[data-cancel]")) {
    event.preventDefault();
    dialog.close();
  }
});

dialog?.addEventListener("close", () => {
  document.getElementById("dialog-content").replaceChildren();
  if (opener?.isConnected) opener.focus();
  else if (opener?.id) document.getElementById(opener.id)?.focus();
});

document.body.addEventListener("dialog:close", () => dialog?.close());

// Menus close on Escape and on a click elsewhere.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details[data-menu][open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = document.querySelector("details[data-menu][open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
