// All queries in a table: rows are made once and then only changed where something differs.

import { byId, el, setAttribute, setText, svg } from "./dom.js";
import { NONE, bytes, count, seconds } from "./format.js";
import { store } from "./store.js";
import { pauseOrResume } from "./controls.js";

const MOST_ROWS = 300;
const STAGES = { "data batch": 0, "sweep batch": 1, waiting: 2, "not gated": 3, paused: 4 };

const COLUMNS = [
  { id: "name", title: "Query", value: (query) => query.name.toLowerCase(), up: true },
  { id: "stage", title: "State", value: (query) => STAGES[query.stage] ?? 9, up: true },
  { id: "cls", title: "Class", value: (query) => query.cls, up: true, number: true, help: "Smaller classes go first" },
  { id: "slack", title: "Slack", value: (query) => (query.stage === "paused" ? null : query.slack), up: true, number: true, help: "Time until the sweeping watermark is expected, minus the cost of the turn; the bar is its interval around zero" },
  { id: "lag", title: "Lag", value: (query) => query.lag, number: true, help: "How far the watermark is behind the clock" },
  { id: "backlog", title: "Backlog", value: (query) => query.backlog, number: true, help: "Rows that wait" },
  { id: "state", title: "State size", value: (query) => query.state, number: true },
  { id: "latency", title: "Latency", value: (query) => query.latency, number: true, help: "Of the last window, and of those before" },
  { id: "reason", title: "Last decision and why", value: (query) => query.reason, up: true },
  { id: "order", title: "" },
];

const SHOWN = {
  all: { title: "all", test: () => true },
  behind: { title: "past slack", test: (query) => query.slack < 0 && query.stage !== "paused" },
  running: { title: "running", test: (query) => query.stage === "data batch" || query.stage === "sweep batch" },
  paused: { title: "paused", test: (query) => query.stage === "paused" },
  dropping: { title: "dropped rows", test: (query) => query.dropped > 0 },
};

let sorting = { id: "slack", up: true }, shown = "all", words = [], order = [], asked = true;
const rows = new Map();
const counts = new Map();

export function startTable() {
  for (const column of COLUMNS) {
    const head = el("th", { scope: "col", class: `c-${column.id}${column.number ? " number" : ""}` });
    if (column.value) {
      head.append(el("button", { type: "button", title: column.help ?? null, onclick: () => sortBy(column) }, column.title));
      head.dataset.id = column.id;
    } else head.append(el("span", { class: "hidden" }, "Change"));
    byId("columns").append(head);
  }
  for (const [id, { title }] of Object.entries(SHOWN)) {
    const number = el("b", {}, "0");
    const chip = el("button", { type: "button", "aria-pressed": id === shown, onclick: () => { shown = id; asked = true; showTable(); } }, number, ` ${title}`);
    counts.set(id, { chip, number });
    byId("counts").append(chip);
  }
  byId("filter").addEventListener("input", (event) => {
    words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    asked = true;
    showTable();
  });
  byId("rows").addEventListener("keydown", (event) => {
    const way = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const row = event.target.closest("tr");
    if (!way || !row || event.target.tagName === "INPUT") return;
    event.preventDefault();
    row[way]?.querySelector("a")?.focus();
  });
}

function sortBy(column) {
  sorting = { id: column.id, up: sorting.id === column.id ? !sorting.up : Boolean(column.up) };
  asked = true;
  showTable();
}

function matches(query) {
  if (!SHOWN[shown].test(query)) return false;
  if (!words.length) return true;
  const text = `${query.name} ${query.stage} ${query.reason} ${query.key}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Rows don't jump under a pointer or a focus. */
function mayReorder() {
  const body = byId("rows");
  return asked || !(body.matches(":hover") || body.contains(document.activeElement));
}

function compare(column, up) {
  const way = up ? 1 : -1;
  return (a, b) => {
    const left = column.value(a), right = column.value(b);
    const none = Number(left === null || left === undefined) - Number(right === null || right === undefined);
    if (none) return none; // what is not known comes last, either way
    return (left < right ? -1 : left > right ? 1 : 0) * way || (a.name < b.name ? -1 : 1);
  };
}

export function showTable() {
  if (store.now === null || byId("overview").hidden) return;
  for (const [id, { chip, number }] of counts) {
    const found = store.queries.filter(SHOWN[id].test).length;
    setText(number, String(found));
    setAttribute(chip, "aria-pressed", id === shown);
    chip.hidden = id !== "all" && id !== shown && !found;
  }
  for (const head of byId("columns").children) {
    setAttribute(head, "aria-sort", head.dataset.id === sorting.id ? (sorting.up ? "ascending" : "descending") : null);
  }
  const found = store.queries.filter(matches);
  const known = new Set(found);
  if (mayReorder() || order.length !== found.length || order.some((query) => !known.has(query))) {
    const column = COLUMNS.find((one) => one.id === sorting.id);
    order = found.sort(compare(column, sorting.up));
    asked = false;
    place(order.slice(0, MOST_ROWS));
  }
  for (const query of order.slice(0, MOST_ROWS)) fill(rows.get(query.key), query);
  note(order.length);
}

function place(queries) {
  const body = byId("rows");
  const focused = document.activeElement;
  const keys = new Set(queries.map((query) => query.key));
  for (const [key, row] of rows) {
    if (!keys.has(key)) { row.tr.remove(); rows.delete(key); }
  }
  let before = body.firstElementChild;
  for (const query of queries) {
    if (!rows.has(query.key)) rows.set(query.key, make(query));
    const { tr } = rows.get(query.key);
    if (tr === before) before = before.nextElementSibling;
    else body.insertBefore(tr, before);
  }
  if (focused && body.contains(focused) && document.activeElement !== focused) focused.focus();
}

function note(found) {
  const place = byId("table-note");
  const text = !store.queries.length
    ? "No query runs. Start one with writeStream…start(): it appears here by itself."
    : !found ? "No query matches."
      : found > MOST_ROWS ? `${found - MOST_ROWS} more are not shown. Filter to see them.` : "";
  place.hidden = !text;
  setText(place, text);
}

function make(query) {
  const row = {
    key: query.key,
    name: el("a", { href: `#/query/${encodeURIComponent(query.key)}` }, query.name),
    stage: el("span", { class: "stage" }),
    cls: el("td", { class: "c-cls number" }),
    slack: el("span", { class: "figure" }),
    sure: el("span", { class: "sure" }),
    bar: bar(),
    lag: el("td", { class: "c-lag number" }),
    backlog: el("td", { class: "c-backlog number" }),
    state: el("td", { class: "c-state number" }),
    latency: el("span", { class: "figure" }),
    line: svg("polyline", { class: "spark-line" }),
    reason: el("td", { class: "c-reason" }),
    order: el("button", { type: "button", class: "small" }),
  };
  row.order.addEventListener("click", () => pauseOrResume(store.byKey.get(query.key)));
  row.tr = el("tr", {},
    el("th", { scope: "row", class: "c-name" }, row.name),
    el("td", { class: "c-stage" }, row.stage),
    row.cls,
    el("td", { class: "c-slack number" }, el("span", { class: "pair" }, row.bar.svg, row.slack, row.sure)),
    row.lag, row.backlog, row.state,
    el("td", { class: "c-latency number" }, el("span", { class: "pair" },
      svg("svg", { class: "spark", viewBox: "0 0 64 18", preserveAspectRatio: "none", "aria-hidden": "true" }, row.line), row.latency)),
    row.reason,
    el("td", { class: "c-order" }, row.order));
  return row;
}

function fill(row, query) {
  setText(row.name, query.name);
  setText(row.stage, query.stage ?? NONE);
  setAttribute(row.stage, "data-stage", query.stage);
  setText(row.cls, String(query.cls ?? 0));
  setText(row.slack, seconds(query.slack, true));
  setAttribute(row.slack, "data-state", query.slack < 0 && query.stage !== "paused" ? "warn" : null);
  const half = (query.high - query.low) / 2;
  setText(row.sure, interval(query) === null ? "" : `±${half.toFixed(half < 1 ? 2 : 1)}`);
  setAttribute(row.sure.parentElement, "title", interval(query));
  fillBar(row.bar, query);
  setText(row.lag, seconds(query.lag));
  setText(row.backlog, count(query.backlog));
  setText(row.state, bytes(query.state));
  setText(row.latency, seconds(query.latency));
  sparkline(row.line, query.latencies);
  setText(row.reason, query.reason || NONE);
  setAttribute(row.reason, "title", query.reason || null);
  const paused = query.stage === "paused";
  setText(row.order, paused ? "Resume" : "Pause");
  setAttribute(row.order, "aria-label", `${paused ? "Resume" : "Pause"} ${query.name}`);
  row.order.disabled = query.stage === "not gated";
}

/** Between which values slack lies, in words; null: not known. */
export function interval({ low, high }) {
  return Number.isFinite(low) && Number.isFinite(high) ? `between ${seconds(low, true)} and ${seconds(high, true)}` : null;
}

/** Slack around zero: the interval as a bar, the expectation as a mark, both squeezed so that far off still fits. */
export function bar() {
  const made = {
    span: svg("rect", { class: "interval", y: 6, height: 6, rx: 3 }),
    mark: svg("rect", { class: "mark", y: 3, width: 2, height: 12, rx: 1 }),
  };
  made.svg = svg("svg", { class: "slack-bar", viewBox: "0 0 72 18", "aria-hidden": "true" },
    svg("line", { class: "zero", x1: 36, x2: 36, y1: 1, y2: 17 }), made.span, made.mark);
  return made;
}

const squeezed = (value) => 36 + 34 * Math.sign(value) * (1 - 1 / (1 + Math.abs(value) / 3));

export function fillBar(made, query) {
  const known = Number.isFinite(query.slack);
  setAttribute(made.mark, "visibility", known ? null : "hidden");
  if (!known) { setAttribute(made.span, "width", 0); return; }
  const low = squeezed(query.low ?? query.slack), high = squeezed(query.high ?? query.slack);
  setAttribute(made.span, "x", low.toFixed(1));
  setAttribute(made.span, "width", Math.max(1, high - low).toFixed(1));
  setAttribute(made.mark, "x", (squeezed(query.slack) - 1).toFixed(1));
  setAttribute(made.svg, "data-state", query.slack < 0 && query.stage !== "paused" ? "warn" : null);
}

export function sparkline(line, values) {
  if (values.length < 2) { setAttribute(line, "points", ""); return; }
  const most = Math.max(...values, 0.001);
  const points = values.map((value, at) => `${(1 + (62 * at) / (values.length - 1)).toFixed(1)},${(17 - (15 * Math.max(0, value)) / most).toFixed(1)}`);
  setAttribute(line, "points", points.join(" "));
}
