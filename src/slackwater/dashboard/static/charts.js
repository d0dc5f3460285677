// Latency percentiles and memory over time, with uPlot.

import uPlot from "./vendor/uPlot.esm.js";
import { byId, el, setText } from "./dom.js";
import { bytes, clock, percent, plural, quantile, seconds } from "./format.js";
import { store, wall } from "./store.js";
import { colour, onTheme } from "./theme.js";

const BUCKET_S = 10;
const HEIGHT = 170;
let latency = null, memory = null;

export function startCharts() {
  onTheme(() => { forget(); showCharts(); });
  new ResizeObserver(fit).observe(byId("latency"));
  new ResizeObserver(fit).observe(byId("memory"));
}

function forget() {
  latency?.destroy();
  memory?.destroy();
  latency = memory = null;
}

function fit() {
  for (const [chart, id] of [[latency, "latency"], [memory, "memory"]]) {
    const width = byId(id).clientWidth;
    if (chart && width && Math.abs(chart.width - width) > 1) chart.setSize({ width, height: HEIGHT });
  }
}

export function showCharts() {
  if (store.now === null || byId("overview").hidden) return;
  showLatency();
  showMemory();
}

function axes(values, splits = undefined) {
  const common = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return [
    { ...common, space: 90, size: 24, values: (chart, found) => found.map((t) => clock(t).slice(0, chart.scales.x.max - chart.scales.x.min < 600 ? 8 : 5)) },
    { ...common, size: 54, splits, values: (_, found) => found.map(values) },
  ];
}

function legend(entries) {
  return el("p", { class: "legend", "aria-hidden": "true" }, entries.map(([kind, text]) => el("span", { class: `key ${kind}` }, text)));
}

/** p50, p90, p99 of the windows that left in each ten seconds. */
export function percentiles(left, now) {
  const buckets = new Map();
  for (const { t, latency: value } of left) {
    const start = Math.floor(wall(t) / BUCKET_S) * BUCKET_S;
    if (!buckets.has(start)) buckets.set(start, []);
    buckets.get(start).push(value);
  }
  const starts = [...buckets.keys()].sort((a, b) => a - b).filter((start) => start > wall(now) - 900);
  const rows = [[], [], [], []];
  for (const start of starts) {
    const sorted = buckets.get(start).sort((a, b) => a - b);
    rows[0].push(Math.min(start + BUCKET_S, wall(now)));
    [0.5, 0.9, 0.99].forEach((share, at) => rows[at + 1].push(quantile(sorted, share)));
  }
  return rows;
}

function showLatency() {
  const place = byId("latency");
  const lately = store.left.filter((one) => one.t > store.now - 60).map((one) => one.latency).sort((a, b) => a - b);
  setText(byId("latency-now"), lately.length
    ? `last minute: p50 ${seconds(quantile(lately, 0.5))}, p90 ${seconds(quantile(lately, 0.9))}, p99 ${seconds(quantile(lately, 0.99))} of ${plural(lately.length, "window")}`
    : "");
  const data = percentiles(store.left, store.now);
  if (data[0].length < 2) {
    if (latency) { latency.destroy(); latency = null; }
    const text = "Percentiles appear when windows have left for some seconds: from a window's end to its result.";
    if (place.textContent !== text) place.replaceChildren(el("p", { class: "empty" }, text));
    return;
  }
  if (!latency) {
    const line = (name, label, width) => ({ label, stroke: colour(name), width, points: { show: false } });
    place.replaceChildren(legend([["p50", "p50"], ["p90", "p90"], ["p99", "p99"]]));
    latency = new uPlot({
      width: place.clientWidth || 300, height: HEIGHT, legend: { show: false }, cursor: { show: false }, padding: [8, 26, 0, 0],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      series: [{}, line("p50", "p50", 2), line("p90", "p90", 1.5), line("p99", "p99", 1.25)],
      axes: axes((value) => `${value} s`),
    }, data, place);
  } else latency.setData(data);
}

function showMemory() {
  const place = byId("memory");
  if (!store.memory) {
    setText(byId("memory-now"), "");
    if (!place.firstChild) place.replaceChildren(el("p", { class: "empty" }, "This driver does not tell what its heap holds."));
    return;
  }
  const [used, live, max, bound, rules, cycles] = store.memory;
  setText(byId("memory-now"), `${bytes(live)} live, ${bytes(used)} used of ${bytes(max)}; ${rules ? "memory rules now" : bound === null ? "no bound" : cycles ? `ruled ${plural(cycles, "time")}` : `never reached its bound of ${percent(bound / max)}`}`);
  byId("memory-now").dataset.state = rules ? "warn" : "";
  const data = [store.heap.map(([t]) => wall(t)), ...[1, 2, 3].map((at) => store.heap.map((point) => point[at]))];
  if (!memory) {
    place.replaceChildren(legend([["used", "used"], ["live", "live"], ["bound", "bound"], ["ruled", "memory ruled"]]));
    memory = new uPlot({
      width: place.clientWidth || 300, height: HEIGHT, legend: { show: false }, cursor: { show: false }, padding: [8, 26, 0, 0],
      scales: { x: { range: (_, low, high) => [Math.min(low, high - 60), high] }, y: { range: () => [0, store.memory ? store.memory[2] : 1] } },
      series: [{},
        { stroke: colour("used"), width: 1, points: { show: false } },
        { stroke: colour("live"), width: 2, points: { show: false } },
        { stroke: colour("bound"), width: 1, dash: [5, 4], points: { show: false } }],
      axes: axes((value) => bytes(value), () => [0, 0.25, 0.5, 0.75, 1].map((share) => share * (store.memory?.[2] ?? 1))),
      hooks: { drawClear: [shade] },
    }, data, place);
  } else memory.setData(data);
}

/** Behind the lines: the spans in which memory ruled. */
function shade(chart) {
  const { left, top, width, height } = chart.bbox;
  chart.ctx.save();
  chart.ctx.fillStyle = colour("ruled");
  for (const [began, ended] of store.ruled ?? []) {
    const from = Math.max(left, chart.valToPos(wall(began), "x", true));
    const to = Math.min(left + width, chart.valToPos(wall(ended ?? store.now), "x", true));
    if (to > from) chart.ctx.fillRect(from, top, Math.max(2, to - from), height);
  }
  chart.ctx.restore();
}
