// Starts everything, and says which view the address means.

import { byId, el } from "./dom.js";
import { clock, plural } from "./format.js";
import { connect, store, subscribe } from "./store.js";
import { startTheme } from "./theme.js";
import { takeToken } from "./controls.js";
import { startSummary, showSummary } from "./summary.js";
import { startTimeline, showTimeline } from "./timeline.js";
import { startCharts, showCharts } from "./charts.js";
import { startTable, showTable } from "./table.js";
import { showLate } from "./late.js";
import { showShadow } from "./shadow.js";
import { focusQuery, showQuery } from "./query.js";

const ALARMS_MS = 5000;
const MOST_ALARMS = 20;
let place = 0;

/** The query that the address names; null: all of them. */
function named() {
  const found = /^#\/query\/(.+)$/.exec(location.hash);
  try { return found ? decodeURIComponent(found[1]) : null; } catch { return null; }
}

function route() {
  const key = named();
  const overview = byId("overview"), back = overview.hidden;
  if (key !== null && !back) place = scrollY;
  overview.hidden = key !== null;
  byId("query").hidden = key === null;
  show();
  // Not for an address within the overview, such as that of the link which skips to the queries.
  if (key === null) { if (back) scrollTo(0, place); }
  else { scrollTo(0, 0); focusQuery(); }
}

function show() {
  showSummary();
  showQuery(named());
  if (byId("overview").hidden) return;
  showTimeline();
  showCharts();
  showLate();
  showShadow();
  showTable();
}

/** Active alarms, where the application raises any. */
async function alarms() {
  if (document.hidden) return;
  let said = [];
  try {
    const answer = await fetch("/api/alarms");
    if (answer.ok) said = await answer.json();
  } catch { return; }
  const active = Array.isArray(said) ? said : said.active ?? [];
  const section = byId("alarms");
  section.hidden = !active.length;
  const more = active.length - MOST_ALARMS;
  section.replaceChildren(...active.slice(0, MOST_ALARMS).map((alarm) => el("p", { class: "alarm" },
    el("b", {}, String(alarm.kind ?? "alarm")),
    alarm.key && store.byKey.has(alarm.key)
      ? el("a", { href: `#/query/${encodeURIComponent(alarm.key)}` }, alarm.query ?? store.byKey.get(alarm.key).name)
      : alarm.query ? el("span", {}, alarm.query) : null,
    el("span", {}, [alarm.what, alarm.what_to_do].filter(Boolean).join(" ")),
    Number.isFinite(alarm.since_wall_ts) ? el("time", {}, `since ${clock(alarm.since_wall_ts)}`) : null)),
  ...(more > 0 ? [el("p", { class: "alarm" }, `and ${plural(more, "older alarm")}; /api/alarms has them all`)] : []));
}

takeToken();
startTheme();
startSummary();
startTimeline((key) => { location.hash = `#/query/${encodeURIComponent(key)}`; });
startCharts();
startTable();
subscribe(() => { if (!document.hidden) show(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) show(); });
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing || byId("overview").hidden) return;
  event.preventDefault();
  byId("filter").focus();
});
addEventListener("hashchange", () => { takeToken(); route(); });
route();
connect();
alarms();
setInterval(alarms, ALARMS_MS);
