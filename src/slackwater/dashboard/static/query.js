// One query: what it waits for in words, its last decisions, windows and batches.

import { byId, el, setAttribute, setText, svg, webAddress } from "./dom.js";
import { NONE, bytes, clock, count, seconds } from "./format.js";
import { store, wall } from "./store.js";
import { bar, fillBar, interval } from "./table.js";
import { changeClass, pauseOrResume } from "./controls.js";

const EVERY_MS = 2000;
const MOST_LINES = 60;
const KINDS = { planned: "planned", requested: "granted", observed: "seen", trouble: "trouble", switched: "switched", ordered: "ordered" };

const shown = new WeakMap(); // what a part shows, so that it is not made again
let key = null, view = null, told = null, asking = 0, latest = 0;

export function showQuery(of) {
  if (of !== key) {
    key = of;
    view = null;
    told = null;
    latest += 1;
    clearInterval(asking);
    if (key === null) return;
    view = build();
    byId("query").replaceChildren(...view.parts);
    ask();
    asking = setInterval(ask, EVERY_MS);
  }
  if (view) fill();
}

/** The application tells the story, where it does; what the stream brought is shown in any case. */
async function ask() {
  if (document.hidden) return;
  const number = (latest += 1);
  try {
    const answer = await fetch(`/api/query/${encodeURIComponent(key)}`);
    const said = answer.ok ? await answer.json() : null;
    if (number === latest) { told = said; fill(); }
  } catch { /* shown as not connected elsewhere */ }
}

function build() {
  const made = {
    title: el("h2", { tabindex: -1 }),
    stage: el("span", { class: "stage" }),
    pause: el("button", { type: "button", onclick: () => pauseOrResume(store.byKey.get(key)) }, "Pause"),
    cls: el("button", { type: "button", onclick: () => { const query = store.byKey.get(key); if (query) changeClass(query); } }, "Class…"),
    ui: el("a", { class: "quiet", target: "_blank", rel: "noopener noreferrer", hidden: true }, "In Spark's UI"),
    words: el("div", { class: "words" }),
    facts: el("dl", { class: "facts" }),
    bar: bar(),
    slack: el("span", { class: "value" }),
    between: el("span", { class: "note" }),
    longest: el("p", { class: "now" }),
    story: el("ol", { class: "story" }),
    windows: el("tbody", {}),
    columns: svg("svg", { class: "columns", viewBox: "0 0 400 90", preserveAspectRatio: "none", role: "img", "aria-label": "Latencies of the last windows" }),
    batches: el("tbody", {}),
    cells: new Map(),
  };
  const head = (...titles) => el("thead", {}, el("tr", {}, titles.map((title, at) => el("th", { scope: "col", class: at ? "number" : null }, title))));
  made.parts = [
    el("p", { class: "back" }, el("a", { href: "#/" }, "← All queries")),
    el("header", { class: "query-head" }, made.title, made.stage, el("span", { class: "buttons" }, made.pause, made.cls, made.ui)),
    made.words,
    made.facts,
    el("div", { class: "cards two" },
      el("section", { class: "card" }, el("div", { class: "card-head" }, el("h3", {}, "Windows"), made.longest), made.columns,
        el("div", { class: "scroll short" }, el("table", { class: "plain" }, head("Window's end", "Left at", "Latency"), made.windows))),
      el("section", { class: "card" }, el("div", { class: "card-head" }, el("h3", {}, "Story"), el("p", { class: "now" }, "newest first")), el("div", { class: "scroll short" }, made.story))),
    el("section", { class: "card" }, el("div", { class: "card-head" }, el("h3", {}, "Batches")),
      el("div", { class: "scroll short" }, el("table", { class: "plain batches" }, head("Began", "Batch", "Lane", "Rows", "Took", "Waited", "Why"), made.batches))),
  ];
  for (const [name, label] of [["slack", "Slack"], ["lag", "Watermark lag"], ["backlog", "Backlog"], ["state", "State"], ["latency", "Last latency"], ["batches", "Batches"], ["cls", "Class"], ["dropped", "Rows dropped as late"], ["rate", "Rows a second"], ["cost", "Cost of a batch"], ["next", "Next window ends"], ["swm", "Its watermark is expected"]]) {
    const value = el("dd", {});
    made.cells.set(name, value);
    made.facts.append(el("div", { class: "stat" }, el("dt", {}, label), value));
  }
  made.cells.get("slack").append(made.slack, made.bar.svg, made.between);
  return made;
}

function fill() {
  const query = store.byKey.get(key);
  const more = told?.query ?? null;
  const name = query?.name ?? more?.name ?? key;
  setText(view.title, name);
  setText(view.stage, query ? query.stage ?? NONE : "not there (any more)");
  setAttribute(view.stage, "data-stage", query?.stage ?? "gone");
  setText(view.pause, query?.stage === "paused" ? "Resume" : "Pause");
  view.pause.disabled = !query || query.stage === "not gated";
  view.cls.disabled = !query;
  const ui = webAddress(query?.ui ?? more?.ui_url);
  view.ui.hidden = ui === null;
  setAttribute(view.ui, "href", ui);
  paragraphs(view.words, told?.explanation ?? query?.reason ?? "");
  const cell = (id, text) => setText(view.cells.get(id), text);
  if (query) {
    setText(view.slack, seconds(query.slack, true));
    setText(view.between, interval(query) ?? "");
    fillBar(view.bar, query);
    cell("lag", seconds(query.lag));
    cell("backlog", Number.isFinite(query.backlog) ? `${count(query.backlog)} ${query.backlog === 1 ? "row" : "rows"}` : NONE);
    cell("state", bytes(query.state));
    cell("latency", seconds(query.latency));
    cell("batches", count(query.batches));
    cell("cls", String(query.cls ?? 0));
    cell("dropped", count(query.dropped));
  }
  cell("rate", more ? count(more.rows_per_s) : NONE);
  cell("cost", more ? seconds(more.batch_cost_s) : NONE);
  cell("next", more?.window_end_ts ? clock(more.window_end_ts) : NONE);
  cell("swm", more?.swm_wall_ts ? `${clock(more.swm_wall_ts)}${more.swm_low_wall_ts ? ` ±${seconds((more.swm_high_wall_ts - more.swm_low_wall_ts) / 2)}` : ""}` : NONE);
  fillWindows();
  fillBatches();
  fillStory();
}

function paragraphs(place, text) {
  if (shown.get(place) === text) return;
  shown.set(place, text);
  place.replaceChildren(...text.split("\n").filter(Boolean).map((line) => el("p", {}, line)));
}

/** Rows of text cells; nothing is touched where they are the same as before. */
function lines(body, cells, empty) {
  const now = JSON.stringify(cells);
  if (shown.get(body) === now) return;
  shown.set(body, now);
  body.replaceChildren(...(cells.length
    ? cells.map((texts) => el("tr", {}, texts.map((text, at) => el("td", { class: at ? "number" : null }, text))))
    : [el("tr", {}, el("td", { colspan: 9, class: "empty" }, empty))]));
}

function fillWindows() {
  const left = store.left.filter((one) => one.key === key).map((one) => ({ end: wall(one.t) - one.latency, left: wall(one.t), latency: one.latency })).slice(-MOST_LINES);
  lines(view.windows, left.toReversed().map((one) => [clock(one.end), clock(one.left), seconds(one.latency)]), "No window of it has left lately.");
  const most = Math.max(...left.map((one) => one.latency), 0.001);
  setText(view.longest, `from a window's end to its result${left.length ? `; the longest of ${left.length} took ${seconds(most)}` : ""}`);
  const width = 400 / Math.max(left.length, 24);
  const now = left.map((one) => one.latency).join();
  if (shown.get(view.columns) === now) return;
  shown.set(view.columns, now);
  view.columns.replaceChildren(...left.map((one, at) => {
    const height = Math.max(2, (86 * Math.max(0, one.latency)) / most);
    return svg("rect", { x: (at * width + 1).toFixed(1), y: (90 - height).toFixed(1), width: Math.max(1, width - 2).toFixed(1), height: height.toFixed(1), rx: 1.5 },
      svg("title", {}, `${clock(one.end)}: ${seconds(one.latency)}`));
  }));
}

function fillBatches() {
  const ran = store.turns.filter((turn) => turn.key === key).slice(-MOST_LINES).toReversed();
  lines(view.batches, ran.map((turn) => [
    clock(wall(turn.began)), `${turn.batch} ${turn.stage === "sweep batch" ? "sweep" : "data"}`, turn.lane === null ? NONE : String(turn.lane + 1),
    count(turn.rows), seconds(turn.took), seconds(turn.waited), turn.reason || NONE,
  ]), "It ran no batch lately.");
}

function fillStory() {
  const entries = (told?.story ?? []).slice(-MOST_LINES).toReversed();
  const now = JSON.stringify(entries);
  if (shown.get(view.story) === now) return;
  shown.set(view.story, now);
  view.story.replaceChildren(...(entries.length
    ? entries.map((entry) => el("li", { "data-kind": entry.kind }, el("time", {}, clock(entry.wall_ts)), el("b", {}, KINDS[entry.kind] ?? entry.kind), el("span", {}, entry.what)))
    : [el("li", { class: "empty" }, told ? "Nothing was decided about it yet." : "The application tells no story of its queries here; see the batches below.")]));
}

export const focusQuery = () => view?.title.focus();
