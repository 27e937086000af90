// Live panels. An element with an id and data-live="relay lag" is fetched again from the page's own address when
//  - a hint names one of its groups, or
//  - it is older than data-max-age seconds (what only time changes: ages, "silent for 4 s").
// Hints say that something changed, never what: the page renders and authorises as ever.

// Modules do not import each other: each is a static file with its own hashed name. Words go by an event.
const announce = (words) => document.dispatchEvent(new CustomEvent("signalbox:announce", { detail: words }));

const POLL_S = 5; // without a socket
const HIDDEN_FACTOR = 6; // a tab in the background asks this much less often
const DEFAULT_AGE_S = 5;
const BEAT_LOST_MS = 25_000; // the server says "still here" every 10 s
const RETRY_MS = [1_000, 2_000, 5_000, 10_000, 30_000];
const GAP_MS = 900; // never fetch more often than this

const state = {
  socket: null,
  tries: 0,
  beatAt: 0,
  connected: false,
  hinted: new Set(),
  fetchedAt: Date.now(),
  fetching: false,
  failedSince: null,
  slowMs: 0,
};

// -- What is on the page ----------------------------------------------------------------------------------------
const panels = () => [...document.querySelectorAll("[data-live][id]")];
const groupsOf = (panel) => panel.dataset.live.split(/\s+/);
const ageOf = (panel) => Number(panel.dataset.maxAge || DEFAULT_AGE_S);
const addressOf = (panel) => panel.dataset.liveUrl || location.href;

// Nothing moves under the pointer or the cursor of somebody who is about to act.
function heldBy(panel) {
  if (document.querySelector("dialog[open]")) return "a dialog is open";
  if (panel.matches(":popover-open")) return "the menu is open";
  if (panel.querySelector("[data-select]:checked")) return "rows are selected";
  const focused = document.activeElement;
  if (focused && panel.contains(focused) && focused.closest("form, input, select, textarea")) return "you are in a form";
  if (panel.querySelector(":is(button, .btn, summary, input, select, textarea, label):hover")) return "the pointer is on a control";
  return "";
}

// -- Words about the connection ---------------------------------------------------------------------------------
const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

function showConnection() {
  const box = document.getElementById("conn");
  if (!box) return;
  const [aspect, words] = connectionWords();
  const place = document.getElementById("conn-words");
  if (box.hidden || place.textContent !== words) {
    box.hidden = false;
    box.dataset.state = aspect;
    box.querySelector("use").setAttribute("href", `#a-${aspect}`);
    place.textContent = words;
  }
}

function connectionWords() {
  if (state.failedSince) return ["bad", `Offline since ${clock(state.failedSince)}`];
  if (state.connected) return ["ok", "Live"];
  return ["warn", `Polling every ${Math.round(pollMs() / 1000)} s`];
}

const pollMs = () => Math.max(POLL_S * 1000, Math.min(30_000, state.slowMs * 10));

// -- Fetch and swap ---------------------------------------------------------------------------------------------
function dueAfterMs(panel) {
  const own = ageOf(panel) * 1000;
  const age = state.connected ? own : Math.max(own, pollMs());
  return document.hidden ? age * HIDDEN_FACTOR : age;
}

function isDue(panel, now) {
  if (!document.hidden && groupsOf(panel).some((group) => state.hinted.has(group))) return true;
  const at = Number(panel.dataset.fetchedAt || state.fetchedAt);
  return now - at >= dueAfterMs(panel);
}

function isFree(panel) {
  const held = heldBy(panel);
  if (held) say(panel, held);
  return !held;
}

async function tick() {
  const now = Date.now();
  if (state.connected && now - state.beatAt > BEAT_LOST_MS) state.socket?.close();
  if (!state.fetching && now - state.fetchedAt >= GAP_MS) {
    const due = panels().filter((panel) => isDue(panel, now) && isFree(panel));
    if (due.length) await refresh(due, now);
  }
  showConnection();
}

async function refresh(due, startedAt) {
  state.fetching = true;
  state.hinted.clear();
  const byAddress = Map.groupBy ? Map.groupBy(due, addressOf) : groupBy(due, addressOf);
  try {
    for (const [address, wanted] of byAddress) await refreshFrom(address, wanted, startedAt);
    state.failedSince = null;
  } catch {
    state.failedSince ??= Date.now();
  } finally {
    state.slowMs = Date.now() - startedAt;
    state.fetchedAt = Date.now();
    state.fetching = false;
  }
}

async function refreshFrom(address, wanted, startedAt) {
  const answer = await fetch(address, {
    headers: { "HX-Request": "true" },
    credentials: "same-origin",
    redirect: "manual",
    cache: "no-store",
    signal: AbortSignal.timeout(15_000),
  });
  if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) {
    location.reload(); // signed out, or no longer allowed: let the server say it
    return;
  }
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const panel of wanted) swap(panel, fresh.getElementById(panel.id), startedAt);
}

function swap(panel, fresh, startedAt) {
  if (!fresh || !panel.isConnected) return;
  if (!isFree(panel)) return;
  const before = verdictsOf(panel);
  const kept = remember(panel);
  fresh.dataset.fetchedAt = String(startedAt);
  const html = fresh.outerHTML;
  window.htmx.swap(panel, html, { swapStyle: "outerHTML" });
  const placed = document.getElementById(panel.id);
  if (!placed) return;
  restore(placed, kept);
  announceChange(before, verdictsOf(placed));
}

function say(panel, why) {
  const asof = panel.querySelector(".asof");
  if (!asof || asof.querySelector(".held-why")) return;
  const words = document.createElement("span");
  words.className = "held-why";
  words.textContent = ` · paused while ${why}`;
  asof.append(words);
}

// -- What a swap must not lose ----------------------------------------------------------------------------------
function remember(panel) {
  const focused = document.activeElement;
  return {
    focus: focused && panel.contains(focused) ? pathTo(focused, panel) : null,
    scrolls: [...panel.querySelectorAll(".scroll, [data-keep-scroll]")].map((box) => [box.scrollLeft, box.scrollTop]),
    open: [...panel.querySelectorAll("details")].map((details) => details.open),
  };
}

function restore(panel, kept) {
  panel.querySelectorAll("details").forEach((details, at) => {
    if (kept.open[at] !== undefined) details.open = kept.open[at];
  });
  panel.querySelectorAll(".scroll, [data-keep-scroll]").forEach((box, at) => {
    if (kept.scrolls[at]) [box.scrollLeft, box.scrollTop] = kept.scrolls[at];
  });
  if (kept.focus) find(kept.focus, panel)?.focus({ preventScroll: true });
}

// An element is found again by its id, else by its address or words, else by its place.
function pathTo(element, panel) {
  const same = [...panel.querySelectorAll(element.tagName)];
  return { id: element.id, tag: element.tagName, href: element.getAttribute("href"), place: same.indexOf(element) };
}

function find(path, panel) {
  if (path.id) return document.getElementById(path.id);
  const same = [...panel.querySelectorAll(path.tag)];
  return same.find((element) => path.href && element.getAttribute("href") === path.href) || same[path.place];
}

// -- What is read out: only words that carry data-announce (the verdict of a page), and only when they change ------
function verdictsOf(panel) {
  const marked = panel.matches("[data-announce]") ? [panel] : [...panel.querySelectorAll("[data-announce]")];
  return marked.map((element) => [element.dataset.announce, element.textContent.trim().replace(/\s+/g, " ")]);
}

function announceChange(before, after) {
  const known = new Map(before);
  for (const [key, words] of after) if (known.get(key) !== words && known.has(key)) announce(words);
}

function groupBy(list, keyOf) {
  const map = new Map();
  for (const one of list) map.set(keyOf(one), [...(map.get(keyOf(one)) || []), one]);
  return map;
}

// -- The socket -------------------------------------------------------------------------------------------------
function connect() {
  const groups = [...new Set(panels().flatMap(groupsOf))];
  if (!groups.length) return;
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const path = document.body.dataset.liveSocket;
  const socket = new WebSocket(`${scheme}://${location.host}${path}?groups=${groups.join(",")}`);
  state.socket = socket;
  socket.addEventListener("message", (event) => onMessage(JSON.parse(event.data)));
  socket.addEventListener("close", () => {
    if (state.socket !== socket) return;
    state.connected = false;
    showConnection();
    const wait = RETRY_MS[Math.min(state.tries++, RETRY_MS.length - 1)];
    setTimeout(connect, wait * (0.75 + Math.random() / 2));
  });
}

// Connected means: the server has said that its way for hints works. Any hint that was missed is made up for once.
function onMessage(message) {
  state.beatAt = Date.now();
  if (message.live !== undefined) {
    if (message.live && !state.connected) panels().flatMap(groupsOf).forEach((group) => state.hinted.add(group));
    state.connected = message.live;
    if (message.live) state.tries = 0;
  }
  if (message.changed) state.hinted.add(message.changed);
  showConnection();
  tick();
}

if (panels().length) {
  window.addEventListener("online", tick);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) tick();
  });
  connect();
  setInterval(tick, 1_000);
} else {
  document.getElementById("conn")?.remove();
}
