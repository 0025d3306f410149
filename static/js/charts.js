// Charts of a page: uPlot on canvas, one synced cursor, thresholds dashed, gaps stay gaps. The server chooses the step.
//
// <figure data-chart data-url="/api/v1/services/x/series?indicator=..." data-unit="ms" data-scale="1" data-limit="60"
//         data-facts="id">, where the element with that id has data-lines='[{"label","ink","version"}]' and
// data-marks='[{"at","label"}]'. It may be part of a live fragment: the chart follows.
// A line with a "url" of its own is drawn from there. data-across="seconds" (or "ms"): the numbers run over that unit
// instead of the clock; they are a past that does not change.

const REFRESH_MS = 5000;
const KEY = "pilothouse";
const figures = [...document.querySelectorAll("[data-chart]")];
const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const inks = { stable: "--idle", canary: "--accent", all: "--text" };
const charts = new Map();
const facts = (figure) => (document.getElementById(figure.dataset.facts) ?? figure).dataset;
const linesText = (figure) => facts(figure)[figure.dataset.linesFact ?? "lines"] ?? "[]";
const linesOf = (figure) => JSON.parse(linesText(figure));

/** light-dark() does not resolve in a canvas: read the colour of an element that uses the token. */
function colour(name) {
  const probe = document.createElement("i");
  probe.className = "unseen";
  document.body.append(probe);
  probe.style.color = `var(${name})`; // CSSOM, not a style attribute: the CSP allows it
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function loadLibrary() {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("../vendor/uPlot.iife.min.js", import.meta.url);
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => reject(new Error("the chart library did not load"));
    document.head.append(script);
  });
}

const range = () => {
  const here = new URLSearchParams(location.search);
  return { from: here.get("from"), to: here.get("to") };
};

async function fetchLine(figure, line) {
  const url = new URL(line.url ?? figure.dataset.url, location.origin);
  if (figure.dataset.across) return answered(await fetch(url, { headers: { Accept: "application/json" } }));
  if (line.limit) url.searchParams.set("limit", line.limit);
  if (line.version) url.searchParams.set("version", line.version);
  const { from, to } = range();
  const fixed = { from: from ?? facts(figure).from, to: to ?? facts(figure).to };
  if (fixed.from && fixed.to) {
    url.searchParams.set("from", fixed.from);
    url.searchParams.set("to", fixed.to);
  } else if (fixed.from) url.searchParams.set("from", fixed.from);
  else if (figure.dataset.seconds) {
    url.searchParams.set("from", Math.floor(Date.now() / 1000) - Number(figure.dataset.seconds));
  }
  return answered(await fetch(url, { headers: { Accept: "application/json" } }));
}

async function answered(answer) {
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail ?? `the console answered ${answer.status}`);
  return body;
}

/** Lines share their instants: the server rounds the ends of a range to whole steps. */
function aligned(bodies, scale) {
  const times = [...new Set(bodies.flatMap((body) => body.points.map(([at]) => at)))].sort((a, b) => a - b);
  const columns = bodies.map((body) => {
    const known = new Map(body.points);
    return times.map((at) => (known.get(at) == null ? null : known.get(at) * scale));
  });
  return [times, ...columns];
}

const shown = (value, unit) => {
  if (value == null) return "no data";
  const text = value === 0 ? "0" : Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3).replace(/\.?0+$/, "");
  return unit ? `${text} ${unit}` : text;
};
const latest = (column) => column.findLast((value) => value != null) ?? null;

/** The clock of every page: what the server writes is UTC too. */
const CLOCK = { hour12: false, timeZone: "UTC" };

function clockTicks(_, ticks, __, ___, step) {
  const seconds = step < 60 ? { second: "2-digit" } : {};
  return ticks.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...seconds, ...CLOCK }));
}

/** The instant of a row as its chart counts: the clock, or a number with its unit. */
const moment = (figure, at) =>
  figure.dataset.across ? shown(at, figure.dataset.across === "seconds" ? "s" : figure.dataset.across) : new Date(at * 1000).toLocaleTimeString([], CLOCK);

function across(figure, axis) {
  const unit = figure.dataset.across;
  if (!unit) {
    return { ...axis, size: 28, gap: 6, space: 70, values: clockTicks, incrs: [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400] };
  }
  const words = unit === "seconds" ? "s" : unit;
  return { ...axis, size: 28, gap: 6, space: 60, values: (_, ticks) => ticks.map((tick) => shown(tick, words)) };
}

function options(figure, lines, plot) {
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--muted"), grid, ticks: { ...grid, size: 4 }, font: `12px ${token("--sans")}` };
  return {
    width: plot.clientWidth,
    height: plot.clientHeight,
    cursor: {
      sync: { key: `${KEY} ${figure.dataset.across ?? "clock"}` },
      drag: { x: !figure.dataset.across, y: false, setScale: false },
      points: { size: 6 },
    },
    legend: { show: false },
    scales: {
      x: { time: !figure.dataset.across },
      y: { range: (_, __, high) => [0, Math.max(high ?? 0, limitOf(figure) ?? 0) * 1.12 || 1] },
    },
    axes: [
      across(figure, axis),
      { ...axis, size: 48, values: (_, ticks) => ticks.map((tick) => shown(tick, "")) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(inks[line.ink] ?? "--text"),
        width: 1.75,
        spanGaps: false,
        points: { show: false },
      })),
    ],
    hooks: {
      draw: [(chart) => drawMarks(chart, figure)],
      setSelect: figure.dataset.across ? [] : [zoom],
      setCursor: [(chart) => writeKey(figure, lines, chart)],
    },
  };
}

/** A limit may move with stable's own value, so it can come with the facts. */
const limitOf = (figure) => {
  const raw = figure.dataset.limit ?? facts(figure)[figure.dataset.limitFact];
  return raw === undefined || raw === "" ? null : Number(raw) * Number(figure.dataset.scale ?? 1);
};

/** Every mark has its line; where labels would cover one another, the newest is written. */
function drawMarks(chart, figure) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  const written = [];
  for (const mark of JSON.parse(facts(figure).marks ?? "[]").reverse()) {
    const x = Math.round(chart.valToPos(mark.at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = colour("--control");
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillStyle = colour("--muted");
    ctx.font = `${12 * devicePixelRatio}px ${token("--sans")}`;
    const isLate = x > bbox.left + bbox.width * 0.85;
    ctx.textAlign = isLate ? "right" : "left";
    const [width, gap] = [ctx.measureText(mark.label).width, 4 * devicePixelRatio];
    const from = isLate ? x - gap - width : x + gap;
    if (written.some((other) => from < other.to + gap && other.from < from + width + gap)) continue;
    written.push({ from, to: from + width });
    ctx.fillText(mark.label, x + (isLate ? -gap : gap), bbox.top + 12 * devicePixelRatio);
  }
  const limit = limitOf(figure);
  if (limit !== null) {
    const y = Math.round(chart.valToPos(limit, "y", true));
    ctx.strokeStyle = colour("--fail");
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
  }
  ctx.restore();
}

/** Dragging writes the range to the URL, so it can be shared and the whole page shows the same time. */
function zoom(chart) {
  const { left, width } = chart.select;
  if (width < 8) return;
  const here = new URL(location.href);
  here.searchParams.set("from", Math.floor(chart.posToVal(left, "x")));
  here.searchParams.set("to", Math.ceil(chart.posToVal(left + width, "x")));
  location.assign(here);
}

function writeKey(figure, lines, chart) {
  const key = figure.querySelector(".key");
  const at = chart.cursor.idx;
  const unit = figure.dataset.unit ?? "";
  key.replaceChildren(
    ...lines.map((line, index) => {
      const column = chart.data[index + 1];
      const part = document.createElement("span");
      const ink = document.createElement("i");
      ink.dataset.ink = line.ink;
      part.append(ink, `${line.label} ${shown(at == null ? latest(column) : column[at], unit)}`);
      return part;
    }),
    ...(limitOf(figure) === null ? [] : [limitKey(figure, unit)]),
  );
}

function limitKey(figure, unit) {
  const part = document.createElement("span");
  const ink = document.createElement("i");
  ink.dataset.ink = "limit";
  part.append(ink, `limit ${shown(limitOf(figure), unit)}`);
  return part;
}

function writeWords(figure, lines, data) {
  const unit = figure.dataset.unit ?? "";
  const answers = lines.map((line, index) => `${line.label} ${shown(latest(data[index + 1]), unit)}`);
  const now = figure.dataset.across ? "At the end" : "Now";
  if (!figure.dataset.across) figure.querySelector(".now").textContent = shown(latest(data[1]), unit);
  figure.querySelector(".plot").setAttribute("aria-label", `${figure.dataset.title} ${now}: ${answers.join(", ")}.`);
}

/** The same numbers as a table, filled when somebody opens it. */
function writeTable(figure, lines, data) {
  const details = figure.querySelector("details");
  if (!details?.open) return;
  const body = details.querySelector("tbody");
  const rows = data[0].map((at, index) => {
    const row = document.createElement("tr");
    const time = document.createElement("td");
    time.textContent = moment(figure, at);
    row.append(time);
    for (const column of data.slice(1)) {
      const cell = document.createElement("td");
      cell.className = "num";
      cell.textContent = shown(column[index], figure.dataset.unit);
      row.append(cell);
    }
    return row;
  });
  body.replaceChildren(...(figure.dataset.across ? rows : rows.reverse()));
}

function say(figure, state, message = "") {
  const plot = figure.querySelector(".plot");
  plot.dataset.state = state;
  plot.dataset.message = message;
}

async function refresh(figure) {
  const lines = linesOf(figure);
  let bodies;
  try {
    bodies = await Promise.all(lines.map((line) => fetchLine(figure, line)));
  } catch (error) {
    // The last good lines stay; the words say since when they are old.
    const at = figure.dataset.freshAt;
    if (!charts.has(figure)) say(figure, "failed", `No answer from the signal source: ${error.message}`);
    else figure.querySelector(".now").textContent = `as of ${at}`;
    return;
  }
  const data = aligned(bodies, Number(figure.dataset.scale ?? 1));
  figure.dataset.freshAt = new Date().toLocaleTimeString([], CLOCK);
  if (!data.slice(1).some((column) => column.some((value) => value != null))) {
    say(figure, "empty", "Nothing was measured in this time.");
  } else say(figure, "ready");
  draw(figure, lines, data);
}

function draw(figure, lines, data) {
  const plot = figure.querySelector(".plot");
  let chart = charts.get(figure);
  if (chart && figure.dataset.drawn === linesText(figure)) chart.setData(data);
  else {
    chart?.destroy();
    chart = new window.uPlot(options(figure, lines, plot), data, plot);
    charts.set(figure, chart);
    figure.dataset.drawn = linesText(figure);
  }
  if (chart.cursor.idx == null) writeKey(figure, lines, chart);
  writeWords(figure, lines, data);
  writeTable(figure, lines, data);
}

function redraw() {
  for (const [figure, chart] of [...charts]) {
    const { data } = chart;
    chart.destroy();
    charts.delete(figure);
    draw(figure, linesOf(figure), data);
  }
}

async function start() {
  for (const figure of figures) say(figure, "loading", "");
  try {
    await loadLibrary();
  } catch (error) {
    for (const figure of figures) say(figure, "failed", error.message);
    return;
  }
  const shownNow = () => figures.filter((figure) => figure.isConnected);
  const live = () => Promise.all(shownNow().filter((figure) => !figure.dataset.across).map(refresh));
  await Promise.all(shownNow().map(refresh));
  for (const figure of figures) {
    figure.querySelector("details")?.addEventListener("toggle", () => refresh(figure));
    new ResizeObserver(() => {
      const plot = figure.querySelector(".plot");
      charts.get(figure)?.setSize({ width: plot.clientWidth, height: plot.clientHeight });
    }).observe(figure.querySelector(".plot"));
  }
  // A zoomed range is a past that does not move.
  setInterval(() => {
    if (!document.hidden && !range().from) live();
  }, REFRESH_MS);
  document.addEventListener("theme:changed", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

start();
