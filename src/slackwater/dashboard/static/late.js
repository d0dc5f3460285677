// Windows that take late rows, one line for each query that does.

import { byId, el, setText } from "./dom.js";
import { bytes, count, seconds } from "./format.js";
import { store } from "./store.js";

const COLUMNS = [
  ["Query", (row) => String(row.name ?? "")],
  ["Stalest", (row) => (Number.isFinite(row.stalest) ? row.stalest.toFixed(3) : "–") + (row.staleness_bound ? ` of ${row.staleness_bound}` : "")],
  ["Revisions", (row) => count((row.late_results ?? 0) + (row.final_results ?? 0))],
  ["Open / past", (row) => `${row.open_windows ?? 0} / ${row.past_windows ?? 0}`],
  ["In memory", (row) => bytes(row.memory_bytes)],
  ["On disk", (row) => bytes(row.disk_bytes)],
  ["Late rows", (row) => count(row.late_rows)],
  ["Waiting", (row) => count(row.pending_rows)],
  ["Dead letters", (row) => count(row.dead_rows)],
  ["Allowed", (row) => seconds(row.allowed_lateness_s)],
];

let shown = "";

export function showLate() {
  const place = byId("late");
  const rows = store.late ?? [];
  setText(byId("late-now"), rows.length
    ? `${count(rows.reduce((sum, row) => sum + (row.pending_rows ?? 0), 0))} rows wait`
    : "no query here takes late rows; with slackwater.late, windows are corrected after their watermark");
  byId("late-card").classList.toggle("none", !rows.length);
  const cells = rows.map((row) => COLUMNS.map(([, read]) => read(row)));
  const now = JSON.stringify(cells);
  if (now === shown) return;
  shown = now;
  if (!rows.length) {
    place.replaceChildren();
    return;
  }
  place.replaceChildren(el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, COLUMNS.map(([title], at) => el("th", { scope: "col", class: at ? "number" : null }, title)))),
    el("tbody", {}, cells.map((row) => el("tr", {}, row.map((text, at) => (at ? el("td", { class: "number" }, text) : el("th", { scope: "row" }, text))))))));
}
