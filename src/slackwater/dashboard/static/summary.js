// The header: who this is, whether the scheduler is in charge, what it does and what it costs.

import { byId, el, setAttribute, setText, webAddress } from "./dom.js";
import { NONE, clock, plural, seconds } from "./format.js";
import { store } from "./store.js";
import { switchPolicy } from "./controls.js";

const SAYS = {
  waiting: () => "connecting…",
  live: () => "live",
  lost: (since) => `not connected since ${clock(since / 1000)}; trying again`,
  silent: (since) => `no news since ${clock(since / 1000)}`,
};

// A scheduler that works decides several times a second. One that hangs cannot tell that its gates have opened.
const QUIET_S = 2;
const SILENT_S = 5;
const cells = new Map();

function cell(name, label, ...more) {
  const value = el("span", { class: "value" });
  const note = el("span", { class: "note" });
  cells.set(name, { value, note });
  return el("div", { class: `stat ${name}` }, el("dt", {}, label), el("dd", {}, value, note, ...more));
}

export function startSummary() {
  byId("summary").append(
    cell("charge", "Scheduler"),
    cell("policy", "Policy", el("button", { type: "button", class: "small", id: "switch", onclick: switchPolicy }, "Switch…")),
    cell("lanes", "Lanes"),
    cell("queries", "Queries"),
    cell("decisions", "Decisions"),
    cell("cost", "Its cost"),
  );
}

function show(name, value, note = "", state = null) {
  const found = cells.get(name);
  setText(found.value, value);
  setText(found.note, note);
  setAttribute(found.value.closest(".stat"), "data-state", state);
}

export function showSummary() {
  const { connection, application, scheduler } = store;
  const state = byId("connection");
  state.dataset.state = connection.state;
  setText(state, SAYS[connection.state](connection.since));
  document.documentElement.dataset.connection = connection.state;
  if (!application) return;
  setText(byId("application"), application.name || application.id);
  document.title = `${application.name || application.id} · Slackwater`;
  setText(byId("about"), `Slackwater ${application.version} · ${application.id} · ${application.master} · process ${application.pid}`);
  const ui = webAddress(application.ui_url);
  byId("spark-ui").hidden = ui === null;
  setAttribute(byId("spark-ui"), "href", ui);

  const running = store.queries.filter((query) => query.stage === "data batch" || query.stage === "sweep batch");
  const parameters = Object.entries(store.parameters ?? {}).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
  show("policy", store.policy ?? NONE, parameters.join(", "));
  show("lanes", `${store.lanes}`, `on ${plural(store.cores, "core")}, ${running.length} running`);
  const behind = store.queries.filter((query) => query.slack < 0 && query.stage !== "paused").length;
  show("queries", `${store.queries.length}`, behind ? `${behind} past their slack` : "all within their slack", behind ? "warn" : null);
  if (!scheduler) return;
  const [open, opened, decisions, p99, , last, enforces] = scheduler;
  const quiet = store.now - last;
  if (open) show("charge", "gates open", "queries follow their own triggers", "bad");
  else if (quiet > SILENT_S) show("charge", "silent", `no decision for ${seconds(quiet)}; gates open by themselves`, "bad");
  else if (!enforces) show("charge", "watching", "queries follow their own triggers");
  else show("charge", "in charge", quiet > QUIET_S ? `last decision ${seconds(quiet)} ago` : opened ? `gates opened ${plural(opened, "time")} before` : "gates closed", quiet > QUIET_S ? "warn" : "good");
  const [first, latest] = [store.rates[0], store.rates.at(-1)];
  const span = latest[0] - first[0];
  show("decisions", span > 0 ? `${((latest[1] - first[1]) / span).toFixed(1)} /s` : NONE, `p99 ${p99.toFixed(1)} ms, ${decisions} so far`);
  show("cost", span > 0 ? `${(100 * (latest[2] - first[2]) / span).toFixed(1)} %` : NONE, "of a core");
}
