// The live connection. The socket says which topic changed; we fire that name as an event on <body>, and the fragments
// that listen to it refetch themselves. After every gap `live:resync` makes them all fetch; nothing is ever replayed.

const root = document.documentElement;
const POLL_MS = 15_000;
const BEAT_MS = 15_000;
const SILENT_MS = 20_000; // the server says `alive` every 8 s, by way of Redis; silence means that news would be lost
const LOST_AFTER_MS = 25_000;

let socket = null;
let attempt = 0;
let retryTimer = 0;
let heardAt = Date.now();
let freshAt = Date.now();
let subscribed = new Set();

const firedAt = new Map();
const askedAt = new Map();

/** Tell the page that `name` changed: every fragment that listens to it fetches itself. */
export function fire(name, detail) {
  firedAt.set(name, performance.now());
  document.body.dispatchEvent(new CustomEvent(name, { detail }));
}

const clockText = (at) => new Date(at).toLocaleTimeString([], { hour12: false, timeZone: "UTC" });
const isOpen = () => socket?.readyState === WebSocket.OPEN;

/** What a fragment listens to: `hx-trigger="rollout:42 from:body, live:resync from:body"`. */
function heardBy(element) {
  return [...element.getAttribute("hx-trigger").matchAll(/([\w.:-]+) from:body/g)].map(([, name]) => name);
}

function wanted() {
  const heard = [...document.querySelectorAll("[hx-trigger]")].flatMap(heardBy);
  return new Set(heard.filter((name) => !name.startsWith("live:")));
}

// An event while a fragment's answer is under way, or before htmx has woken the new element, would be lost with the
// old one: the answer may be from before the change. So who was told meanwhile asks once more.
document.addEventListener("htmx:beforeSend", ({ detail }) => {
  if (detail.elt.id && detail.elt.hasAttribute("hx-trigger")) askedAt.set(detail.elt.id, performance.now());
});
document.addEventListener("htmx:afterSettle", ({ target }) => {
  const asked = askedAt.get(target.id);
  if (asked === undefined || !target.hasAttribute("hx-trigger")) return;
  askedAt.delete(target.id);
  if (!heardBy(target).some((name) => firedAt.get(name) > asked)) return;
  window.htmx.ajax("GET", target.getAttribute("hx-get"), { source: target, target, swap: target.getAttribute("hx-swap") });
});

function subscribe() {
  if (!isOpen()) return;
  const now = wanted();
  const add = [...now].filter((topic) => !subscribed.has(topic));
  const drop = [...subscribed].filter((topic) => !now.has(topic));
  subscribed = now;
  if (add.length || drop.length) socket.send(JSON.stringify({ subscribe: add, unsubscribe: drop }));
}

function show(state) {
  if (root.dataset.live !== state) root.dataset.live = state;
  for (const place of document.querySelectorAll("[data-fresh]")) place.textContent = clockText(freshAt);
}

function connect() {
  clearTimeout(retryTimer);
  if (socket || document.hidden || !document.getElementById("live-light")) return;
  socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/ws/live`);
  socket.onopen = () => {
    attempt = 0;
    heardAt = freshAt = Date.now();
    subscribed = new Set();
    subscribe();
    show("live");
    fire("live:resync");
  };
  socket.onmessage = ({ data }) => {
    heardAt = freshAt = Date.now();
    const message = JSON.parse(data);
    if (message.topic) fire(message.topic);
  };
  socket.onclose = ({ code }) => {
    socket = null;
    if (code === 4401) return location.assign(`/login?next=${encodeURIComponent(location.pathname)}`);
    if (document.hidden) return;
    show(Date.now() - freshAt > LOST_AFTER_MS ? "lost" : "polling");
    // Full jitter: after a restart of the console its readers must not all come back in the same second.
    const wait = 300 + Math.random() * Math.min(15_000, 500 * 2 ** attempt++);
    retryTimer = setTimeout(connect, wait);
  };
}

function check() {
  if (document.hidden) return;
  if (isOpen() && Date.now() - heardAt > SILENT_MS) socket.close();
  if (!isOpen()) show(Date.now() - freshAt > LOST_AFTER_MS ? "lost" : "polling");
}

setInterval(check, 1000);
setInterval(() => {
  if (!document.hidden && !isOpen()) fire("live:resync");
}, POLL_MS);
// Ages and measured numbers move without anybody saying so.
setInterval(() => {
  if (!document.hidden && isOpen()) fire("live:beat");
}, BEAT_MS);

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    socket?.close();
    return;
  }
  attempt = 0;
  fire("live:resync");
  connect();
});
window.addEventListener("online", connect);

// A page that polls is fresh as of its last answer; one that gets no answers is lost.
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (detail.successful) freshAt = Date.now();
  check();
});
document.addEventListener("htmx:afterSettle", subscribe);

connect();

/** For the browser tests and nothing else: what the page believes. */
export const state = () => ({ live: root.dataset.live, subscribed: [...subscribed], freshAt });
