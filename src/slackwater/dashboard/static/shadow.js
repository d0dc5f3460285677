// Shadow mode: what another policy would bring and run, beside the one in force, and what advice says.

import { byId, el, setText } from "./dom.js";
import { NONE, clock, plural, seconds } from "./format.js";
import { store, wall } from "./store.js";

const cores = (value) => (Number.isFinite(value) ? value.toFixed(2) : NONE);
let shown = { gain: "", choices: "", advice: "" };

export function showShadow() {
  const shadow = store.shadow;
  byId("shadow-card").hidden = !shadow;
  if (!shadow) return;
  const { gain, choices, wanted } = shadow;
  setText(byId("shadow-title"), `${gain.policy}, in the shadow`);
  setText(byId("shadow-now"), gain.trouble ? `the last replay came to nothing: ${gain.trouble}` : Number.isFinite(gain.t)
    ? `the last ${seconds(gain.measured_s)} replayed, ${seconds(Math.max(0, store.now - gain.t))} ago; its check is off by ${Math.round(100 * gain.error_mean)} %`
    : "it changes nothing; the first replay begins after a minute");
  byId("shadow-now").dataset.state = gain.trouble ? "warn" : "";
  showGain(gain);
  showChoices(choices, wanted);
  showAdvice(gain);
}

function showGain(gain) {
  const rows = Number.isFinite(gain.t) ? [
    ["Latency, mean", seconds(gain.mean_s), between(gain), change(gain.mean_s, gain.predicted_mean_s)],
    ["99th percentile", seconds(gain.p99_s), seconds(gain.predicted_p99_s), change(gain.p99_s, gain.predicted_p99_s)],
    ["Cores busy", cores(gain.cpu_cores), cores(gain.predicted_cpu_cores), change(gain.cpu_cores, gain.predicted_cpu_cores)],
  ] : [];
  if (!differs("gain", [gain.policy, rows])) return;
  byId("gain").replaceChildren(...(rows.length ? [el("table", { class: "plain" },
    el("thead", {}, el("tr", {}, ["", "as it is", `under ${gain.policy}`, ""].map((title) => el("th", { scope: "col", class: "number" }, title)))),
    el("tbody", {}, rows.map(([title, ...values]) => el("tr", {}, el("th", { scope: "row" }, title), values.map((text) => el("td", { class: "number" }, text))))))] : []));
}

const between = (gain) => `${seconds(gain.predicted_mean_s)} (${seconds(gain.predicted_mean_low_s)} to ${seconds(gain.predicted_mean_high_s)})`;

function change(before, after) {
  if (!(before > 0) || !Number.isFinite(after)) return NONE;
  const share = Math.round(100 * (after / before - 1));
  return share === 0 ? "the same" : `${Math.abs(share)} % ${share < 0 ? "less" : "more"}`;
}

function showChoices(choices, wanted) {
  if (!differs("choices", [choices, wanted])) return;
  setText(byId("choices-title"), wanted ? `It would run ${plural(wanted, "query", "queries")} now${wanted > choices.length ? ", first" : ""}` : "It would run nothing now");
  byId("choices").replaceChildren(...choices.map(([name, reason]) => el("li", {}, el("b", {}, name), " ", reason)));
}

function showAdvice(gain) {
  byId("advice").hidden = !store.advice.length;
  if (!differs("advice", [store.advice, gain.advised_t])) return;
  setText(byId("advice-title"), `Advice of ${clock(wall(gain.advised_t))}: ${gain.switch ?? "leave things alone"}`);
  byId("advice-lines").replaceChildren(...store.advice.map((line) => el("li", {}, line)));
}

function differs(part, value) {
  const now = JSON.stringify(value);
  if (shown[part] === now) return false;
  shown = { ...shown, [part]: now };
  return true;
}
