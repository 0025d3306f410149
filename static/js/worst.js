// Title and favicon carry the worst state, so that a tab in the background still tells.
const icon = document.getElementById("favicon");
const title = document.title;

function show() {
  const rail = document.getElementById("rail");
  if (!rail || !icon) return;
  const { worst, needs } = rail.dataset;
  const lost = document.documentElement.dataset.live === "lost";
  const name = lost ? "-unknown" : worst === "fail" || worst === "warn" ? `-${worst}` : "";
  const href = `${icon.dataset.base}favicon${name}.svg`;
  if (!icon.href.endsWith(href)) icon.href = href;
  document.title = lost ? `? ${title}` : Number(needs) ? `(${needs}) ${title}` : title;
}

show();
document.addEventListener("htmx:afterSettle", show);
new MutationObserver(show).observe(document.documentElement, { attributeFilter: ["data-live"] });
