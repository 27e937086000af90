// Zoomable histories: uPlot in the place of the chart that the server drew (templates/components/history.html has the
// contract). The data come from the figure's own address; a zoom goes into the page's address, so it can be sent.

const PLOT_HEIGHT = 260;
const LEAST_DRAG_PX = 6;
const LEAST_WINDOW_S = 30;
const READ_LINES = 4;
const plots = new Map(); // figure id -> what is drawn there

const announce = (words) => document.dispatchEvent(new CustomEvent("signalbox:announce", { detail: words }));
const figures = () => [...document.querySelectorAll("figure[data-history]")];

// -- Data -------------------------------------------------------------------------------------------------------
async function read(figure) {
  const answer = await fetch(addressOf(figure), { credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

// The figure's own address, unless the page has been zoomed since the figure was rendered.
function addressOf(figure) {
  const url = new URL(figure.dataset.history, location.href);
  const page = new URLSearchParams(location.search);
  if (!page.get("since") || !page.get("until")) return url;
  url.searchParams.delete("window");
  for (const end of ["since", "until"]) url.searchParams.set(end, page.get(end));
  return url;
}

async function show(figure) {
  const known = plots.get(figure.id);
  if (known?.busy) return;
  const turn = (known?.turn ?? 0) + 1;
  plots.set(figure.id, { ...known, turn });
  let data;
  try {
    data = await read(figure);
  } catch {
    return; // the page's own status says that the server does not answer; what is drawn stays
  }
  if (plots.get(figure.id).turn === turn && figure.isConnected) draw(figure, data);
}

function draw(figure, data) {
  const lines = data.series.filter((line) => line.times.length);
  if (!lines.length) return undraw(figure);
  const known = plots.get(figure.id);
  const rows = window.uPlot.join(lines.map((line) => [line.times, line.values]));
  const shape = JSON.stringify([lines.map((line) => [line.name, line.state, line.note]), data.limit]);
  if (known.plot && known.shape === shape && known.plot.root.isConnected) {
    known.data = data;
    known.plot.batch(() => {
      known.plot.setData(rows, false);
      known.plot.setScale("x", { min: data.since, max: data.until });
    });
    known.plot.redraw();
  } else {
    known.plot?.destroy();
    known.data = data;
    known.shape = shape;
    known.lines = lines;
    known.plot = new window.uPlot(options(figure, lines, data), rows, place(figure));
    prepare(figure);
  }
  sayNow(figure);
}

function undraw(figure) {
  const known = plots.get(figure.id);
  known.plot?.destroy();
  plots.set(figure.id, { turn: known.turn });
  place(figure).removeAttribute("data-ready");
  reading(figure).textContent = "";
}

const place = (figure) => figure.querySelector(".history-plot");
const reading = (figure) => figure.querySelector(".history-read");

// -- How it looks -------------------------------------------------------------------------------------------------
// A canvas knows no light-dark(): let the browser work each colour out on an element.
function colour(figure, token) {
  const probe = document.createElement("span");
  probe.style.color = `var(${token})`;
  figure.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const DASHES = { warn: [7, 3], unknown: [2, 4] };
const LOUD = new Set(["bad", "warn"]);

function options(figure, lines, data) {
  const ink = colour(figure, "--ink-3");
  const grid = { stroke: colour(figure, "--line"), width: 1 };
  const zone = figure.dataset.zone;
  const axis = { stroke: ink, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const series = lines.map((line) => ({
    label: line.name,
    stroke: colour(figure, LOUD.has(line.state) ? `--${line.state}-solid` : "--idle-solid"),
    width: LOUD.has(line.state) ? 2 : 1.5,
    dash: DASHES[line.state],
    points: { show: line.values.filter((value) => value !== null).length < 3 },
  }));
  return {
    width: widthOf(figure),
    height: PLOT_HEIGHT,
    legend: { show: false },
    tzDate: (at) => window.uPlot.tzDate(new Date(at * 1_000), zone),
    scales: {
      x: { range: (_, min, max) => [min, max] },
      y: { range: (_, __, max) => window.uPlot.rangeNum(0, Math.max(1, max ?? 1, data.limit ?? 1), { min: { mode: 1, hard: 0 }, max: { pad: 0.08, mode: 1 } }) },
    },
    axes: [
      { ...axis, values: [[86_400, "{D} {MMM}"], [3_600, "{HH}:{mm}"], [60, "{HH}:{mm}"], [1, "{HH}:{mm}:{ss}"]].map(timeRule) },
      { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en-GB", { maximumFractionDigits: 2 })) },
    ],
    cursor: { y: false, drag: { x: true, y: false, setScale: false, dist: LEAST_DRAG_PX }, sync: { key: "history" }, bind: { dblclick: () => () => null } },
    series: [{}, ...series],
    hooks: {
      ready: [(plot) => plot.setScale("x", { min: data.since, max: data.until })],
      draw: [(plot) => drawLimit(plot, data.limit, figure.dataset.limitWords, ink)],
      setCursor: [() => sayAt(figure.id)],
      setSelect: [(plot) => onSelect(figure.id, plot)],
    },
  };
}

function drawLimit(plot, limit, words, ink) {
  if (limit === null) return;
  const { ctx, bbox } = plot;
  const y = Math.round(plot.valToPos(limit, "y", true));
  const unit = window.devicePixelRatio || 1;
  ctx.save();
  Object.assign(ctx, { strokeStyle: ink, fillStyle: ink, lineWidth: unit, font: `${12 * unit}px system-ui, sans-serif`, textAlign: "left" });
  ctx.setLineDash([3 * unit, 3 * unit]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.fillText(`${words} ${number(limit)}`, bbox.left + 6 * unit, y - 5 * unit);
  ctx.restore();
}

// uPlot's own: [least step in s, format, then what a new year, month, day, hour, minute, second adds, how it adds].
const timeRule = ([step, form]) => [step, form, null, null, step < 86_400 ? "\n{D} {MMM}" : null, null, null, null, 1];

const widthOf = (figure) => Math.max(240, Math.floor(figure.clientWidth));

function prepare(figure) {
  const box = place(figure);
  box.dataset.ready = "";
  box.tabIndex = 0;
  box.setAttribute("role", "slider");
  box.setAttribute("aria-orientation", "horizontal");
  box.setAttribute("aria-label", `${figure.dataset.title}: time. Arrow keys move, with Shift they mark, Enter zooms in, Escape goes back to now.`);
  if ("bound" in box.dataset) return;
  box.dataset.bound = "";
  const id = figure.id;
  box.addEventListener("keydown", (event) => onKey(event, document.getElementById(id)));
  box.addEventListener("mousedown", () => (plots.get(id).busy = true));
  // Letting go outside the plot ends the drag too.
  window.addEventListener("mouseup", () => setTimeout(() => delete plots.get(id)?.busy, 0));
  new ResizeObserver(() => {
    const figure = document.getElementById(id);
    if (figure && plots.get(id)?.plot) plots.get(id).plot.setSize({ width: widthOf(figure), height: PLOT_HEIGHT });
  }).observe(box);
}

// -- What it says ---------------------------------------------------------------------------------------------------
function clock(figure, at) {
  const options = { timeZone: figure.dataset.zone, hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const spans = plots.get(figure.id).data;
  if (spans.until - spans.since > 86_400) Object.assign(options, { day: "numeric", month: "short" });
  return new Date(at * 1_000).toLocaleString("en-GB", options);
}

function wordsAt(figure, index) {
  const { plot, lines } = plots.get(figure.id);
  const { unit, what } = figure.dataset;
  const found = lines
    .map((line, at) => ({ line, value: valueNear(plot.data[at + 1], index) }))
    .filter((one) => one.value !== null)
    .sort((a, b) => b.value - a.value);
  const named = found.slice(0, READ_LINES).map(({ line, value }) => `${what ? `${what} ` : ""}${line.name}: ${number(value)}`);
  const more = found.length > READ_LINES ? `, ${found.length - READ_LINES} more below` : "";
  const said = named.length ? `${named.join(", ")}${more}${unit ? ` (${unit})` : ""}` : "not known";
  return `${clock(figure, plot.data[0][index])} · ${said}`;
}

const number = (value) => value.toLocaleString("en-GB", { maximumFractionDigits: 1 });

// Lines are read at times of their own: the newest value up to here, within the joined gap.
function valueNear(values, index) {
  for (let at = index; at >= 0 && index - at < 50; at -= 1) {
    if (values[at] === null) return null;
    if (values[at] !== undefined) return values[at];
  }
  return null;
}

function sayNow(figure) {
  const { plot } = plots.get(figure.id);
  if (plot.cursor.idx == null) reading(figure).textContent = `Newest: ${wordsAt(figure, plot.data[0].length - 1)}`;
  const box = place(figure);
  box.setAttribute("aria-valuemin", String(Math.round(plot.data[0][0])));
  box.setAttribute("aria-valuemax", String(Math.round(plot.data[0].at(-1))));
  if (document.activeElement !== box) setValue(figure, plot.data[0].length - 1);
}

function setValue(figure, index) {
  const box = place(figure);
  box.setAttribute("aria-valuenow", String(Math.round(plots.get(figure.id).plot.data[0][index])));
  box.setAttribute("aria-valuetext", wordsAt(figure, index));
}

function sayAt(id) {
  const figure = document.getElementById(id);
  const known = plots.get(id);
  if (!figure || !known?.plot) return;
  const { idx } = known.plot.cursor;
  if (idx == null) return sayNow(figure);
  reading(figure).textContent = wordsAt(figure, idx);
}

// -- Zoom -----------------------------------------------------------------------------------------------------------
function onSelect(id, plot) {
  const figure = document.getElementById(id);
  if (!figure || plots.get(id).keys || plot.select.width < LEAST_DRAG_PX) return;
  const since = plot.posToVal(plot.select.left, "x");
  const until = plot.posToVal(plot.select.left + plot.select.width, "x");
  plot.setSelect({ width: 0, height: 0 }, false);
  zoom(since, until);
}

function zoom(since, until) {
  const missing = Math.max(0, LEAST_WINDOW_S - (until - since)) / 2;
  const url = new URL(location.href);
  url.searchParams.delete("window");
  url.searchParams.set("since", stamp(since - missing));
  url.searchParams.set("until", stamp(until + missing));
  go(url);
}

const stamp = (at) => `${new Date(Math.round(at) * 1_000).toISOString().slice(0, 19)}Z`;

function go(url) {
  history.pushState(null, "", url);
  follow();
  announce(`Window from ${url.searchParams.get("since") ?? "an hour ago"} to ${url.searchParams.get("until") ?? "now"}.`);
}

// The data at once; the table, the links and the chart of the server with the panel's next turn.
function follow() {
  for (const figure of figures()) {
    const panel = figure.closest("[data-live][id]");
    if (!panel) return location.reload();
    delete plots.get(figure.id)?.busy;
    panel.dataset.fetchedAt = "0";
    show(figure);
  }
}

function backToNow() {
  const url = new URL(location.href);
  if (!url.searchParams.has("since")) return;
  for (const end of ["since", "until"]) url.searchParams.delete(end);
  // The figure's own address may still be the zoomed one until its panel is rendered again.
  for (const figure of figures()) {
    const data = new URL(figure.dataset.history, location.href);
    for (const end of ["since", "until"]) data.searchParams.delete(end);
    figure.dataset.history = data.pathname + data.search;
  }
  go(url);
}

// -- Keys -------------------------------------------------------------------------------------------------------------
function onKey(event, figure) {
  const known = plots.get(figure.id);
  const { plot } = known;
  const last = plot.data[0].length - 1;
  const at = known.at === undefined || known.at > last ? last : known.at;
  const step = Math.max(1, Math.round(last / 60));
  const to = { ArrowLeft: at - step, ArrowRight: at + step, ArrowDown: at - step, ArrowUp: at + step, Home: 0, End: last, PageUp: at + step * 10, PageDown: at - step * 10 }[event.key];
  if (to !== undefined) move(figure, Math.min(last, Math.max(0, to)), event.shiftKey, at);
  else if (event.key === "Enter") zoomToMark(figure, at);
  else if (event.key === "Escape") backToNow();
  else return;
  event.preventDefault();
}

function move(figure, to, marks, from) {
  const known = plots.get(figure.id);
  const { plot } = known;
  known.at = to;
  known.mark = marks ? (known.mark ?? from) : undefined;
  const left = plot.valToPos(plot.data[0][to], "x");
  plot.setCursor({ left, top: plot.over.clientHeight / 2 });
  const start = known.mark === undefined ? left : plot.valToPos(plot.data[0][known.mark], "x");
  known.keys = true;
  plot.setSelect({ left: Math.min(start, left), top: 0, width: Math.abs(left - start), height: plot.over.clientHeight }, false);
  known.keys = false;
  setValue(figure, to);
}

function zoomToMark(figure, at) {
  const known = plots.get(figure.id);
  const times = known.plot.data[0];
  if (known.mark === undefined || known.mark === at) return announce("Hold Shift with the arrow keys to mark a piece of time first.");
  const [from, to] = [known.mark, at].sort((a, b) => a - b);
  known.mark = undefined;
  known.at = undefined;
  known.plot.setSelect({ width: 0, height: 0 }, false);
  zoom(times[from], times[to]);
}

// -- Start ------------------------------------------------------------------------------------------------------------
function redrawAll() {
  for (const figure of figures()) {
    const known = plots.get(figure.id);
    if (known) known.shape = "";
    show(figure);
  }
}

function start() {
  if (!window.uPlot) return;
  figures().forEach(show);
  // A live panel was rendered again: the plot itself is kept (hx-preserve), its data are read again.
  document.addEventListener("htmx:load", (event) => {
    for (const figure of figures()) if (event.detail.elt.contains(figure)) show(figure);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-zoom]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(new URL(link.href));
  });
  window.addEventListener("popstate", () => location.reload());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  new MutationObserver(redrawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

if (figures().length) start();
