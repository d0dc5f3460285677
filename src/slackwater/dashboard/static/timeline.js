// Lanes over time: a block for each batch that ran, by what it was; pointer and keys tell which and why.

import { byId, setAttribute, setText } from "./dom.js";
import { count, clock, plural, seconds } from "./format.js";
import { store, wall } from "./store.js";
import { colour, onTheme } from "./theme.js";

const LANE = 26;
const GAP = 4;
const AXIS = 18;
const SWEEP_INSET = 6;
const LABEL = 58;
const MOST_LANES = 24;

let canvas, span = 60, chosen = null, hovered = null, blocks = [];

export function startTimeline(open) {
  canvas = byId("timeline");
  byId("span").addEventListener("change", (event) => { span = Number(event.target.value); showTimeline(); });
  canvas.addEventListener("pointermove", (event) => { hovered = at(event); draw(); tell(); });
  canvas.addEventListener("pointerleave", () => { hovered = null; draw(); tell(); });
  canvas.addEventListener("click", (event) => { const block = at(event); if (block?.turn.key) open(block.turn.key); });
  canvas.addEventListener("blur", () => { chosen = null; draw(); tell(); });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && chosen?.key) { open(chosen.key); return; }
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined && event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    event.preventDefault();
    move(step, event.key);
    draw();
    tell();
  });
  new ResizeObserver(() => showTimeline()).observe(canvas);
  onTheme(() => draw());
}

function move(step, key) {
  const turns = blocks.map((block) => block.turn).sort((a, b) => (a.ended ?? Infinity) - (b.ended ?? Infinity) || a.began - b.began);
  if (!turns.length) return;
  const place = turns.indexOf(chosen);
  if (step === undefined) {
    // Up and down: the turn on the next lane that is nearest in time.
    const from = chosen ?? turns.at(-1);
    const way = key === "ArrowUp" ? -1 : 1;
    const there = turns.filter((turn) => (rowOf(turn) - rowOf(from)) * way > 0);
    const row = Math[way > 0 ? "min" : "max"](...there.map(rowOf));
    const nearest = there.filter((turn) => rowOf(turn) === row).sort((a, b) => Math.abs(a.began - from.began) - Math.abs(b.began - from.began))[0];
    chosen = nearest ?? from;
    return;
  }
  if (!Number.isFinite(step)) chosen = step < 0 ? turns[0] : turns.at(-1);
  else chosen = place < 0 ? turns.at(-1) : turns[Math.min(turns.length - 1, Math.max(0, place + step))];
}

const rowOf = (turn) => (turn.lane === null ? lanes() : Math.min(turn.lane, lanes() - 1));
const running = () => store.queries.map((query) => query.turn).filter(Boolean);
const lanes = () => Math.min(MOST_LANES, Math.max(1, store.lanes));
const freely = () => store.turns.some((turn) => turn.lane === null && turn.ended > store.now - span);

function at(event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  return blocks.findLast((block) => x >= block.x - 1 && x <= block.x + block.w + 1 && y >= block.y && y <= block.y + LANE) ?? null;
}

/** What is told by now of a turn that somebody looks at: a running one may have ended since, and a reader that missed
 * a second gets all turns anew. Null: nothing is known of it any more. */
function settled(turn) {
  const now = running();
  if (!turn || now.includes(turn) || store.turns.includes(turn)) return turn;
  const own = (one) => one.name === turn.name && one.stage === turn.stage;
  const told = turn.running
    ? now.find((one) => own(one) && one.began === turn.began) ?? store.turns.find((one) => own(one) && one.ended > turn.began)
    : store.turns.find((one) => own(one) && one.batch === turn.batch && one.began === turn.began);
  if (told || !turn.running || turn.began < store.now - span) return told ?? null;
  turn.over = true;
  return turn;
}

export function showTimeline() {
  if (!canvas || store.now === null) return;
  chosen = settled(chosen);
  if (hovered) { const turn = settled(hovered.turn); hovered = turn && { ...hovered, turn }; }
  draw();
  tell();
}

function draw() {
  const rows = lanes() + (freely() ? 1 : 0);
  const width = canvas.clientWidth, height = rows * (LANE + GAP) + AXIS;
  if (!width || store.now === null) return;
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const label = width < 520 ? 22 : LABEL;
  const x = (t) => label + (width - label) * (1 - (store.now - t) / span);
  const ink = { data: colour("data"), sweep: colour("sweep"), free: colour("free"), text: colour("muted"), line: colour("line"), lane: colour("lane"), on: colour("on-block"), focus: colour("focus") };
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";

  for (let row = 0; row < rows; row += 1) {
    const y = row * (LANE + GAP);
    pen.fillStyle = ink.lane;
    rounded(pen, label, y, width - label, LANE, 4);
    pen.fillStyle = ink.text;
    pen.textAlign = "left";
    const name = row === lanes() ? "free" : label < LABEL ? `${row + 1}` : `lane ${row + 1}`;
    pen.fillText(name, 0, y + LANE / 2);
  }
  axis(pen, x, label, width, rows * (LANE + GAP), ink);

  const from = store.now - span;
  const lit = (hovered?.turn ?? chosen)?.name ?? null;
  blocks = [];
  for (const turn of [...store.turns, ...running()]) {
    if (turn.ended < from || rowOf(turn) >= rows) continue;
    const left = Math.max(label, x(turn.began));
    const w = Math.max(1.5, x(turn.ended ?? store.now) - left - (turn.running ? 0 : 0.75));
    const y = rowOf(turn) * (LANE + GAP);
    blocks.push({ turn, x: left, y, w });
    pen.globalAlpha = (lit === null || turn.name === lit ? 1 : 0.35) * (turn.running ? 0.6 : 1);
    const sweep = turn.stage === "sweep batch";
    pen.fillStyle = turn.lane === null ? ink.free : sweep ? ink.sweep : ink.data;
    // Lower, not only of another colour: not everybody tells the two apart.
    const inset = sweep ? SWEEP_INSET : 2;
    rounded(pen, left, y + inset, w, LANE - 2 * inset, Math.min(3, w / 2));
    if (w > 44) {
      pen.save();
      pen.beginPath();
      pen.rect(left, y, w - 4, LANE);
      pen.clip();
      pen.fillStyle = ink.on;
      pen.fillText(turn.name, left + 5, y + LANE / 2);
      pen.restore();
    }
    if (turn === chosen || turn === hovered?.turn) {
      pen.strokeStyle = ink.focus;
      pen.lineWidth = 2;
      pen.strokeRect(left - 1, y + 1, w + 2, LANE - 2);
    }
  }
  pen.globalAlpha = 1;
}

function axis(pen, x, label, width, y, ink) {
  const step = span <= 10 ? 2 : span <= 30 ? 5 : span <= 60 ? 10 : 30;
  pen.textAlign = "center";
  for (let ago = 0; ago < span; ago += step) {
    const place = x(store.now - ago);
    if (place < label + 14) continue;
    pen.strokeStyle = ink.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(Math.round(place) - 0.5, 0);
    pen.lineTo(Math.round(place) - 0.5, y);
    pen.stroke();
    pen.fillStyle = ink.text;
    pen.textAlign = ago === 0 ? "right" : "center";
    pen.fillText(ago === 0 ? "now" : `−${ago} s`, ago === 0 ? width : place, y + AXIS / 2 + 1);
  }
}

function rounded(pen, x, y, w, h, radius) {
  pen.beginPath();
  pen.roundRect(x, y, Math.max(0, w), h, radius);
  pen.fill();
}

function tell() {
  const turn = hovered?.turn ?? chosen;
  // Read out what somebody went to; not what changes by itself each second.
  setAttribute(byId("turn"), "aria-live", turn ? "polite" : "off");
  if (turn) {
    const what = turn.stage === "sweep batch" ? "sweep batch" : turn.lane === null ? "batch that was not granted" : "data batch";
    const lane = turn.lane === null ? "" : ` on lane ${turn.lane + 1}`;
    const why = turn.reason ? ` Why: ${turn.reason}.` : "";
    if (turn.running) {
      const state = turn.over ? "has ended, and is not reported yet" : `runs for ${seconds(Math.max(0, store.now - turn.began))} now`;
      setText(byId("turn"), `${turn.name}, ${what}${lane} since ${clock(wall(turn.began))}: ${state}.${why}`);
      return;
    }
    setText(byId("turn"), `${turn.name}, ${what} ${turn.batch}${lane} at ${clock(wall(turn.began))}: ${plural(turn.rows, "row")} in ${seconds(turn.took)}, after waiting ${seconds(turn.waited)}.${why}`);
    return;
  }
  const run = store.queries.filter((query) => query.stage === "data batch" || query.stage === "sweep batch");
  const names = run.slice(0, 4).map((query) => `${query.name} (${query.stage})`).join(", ");
  const since = store.turns.filter((one) => one.ended > store.now - span);
  setText(byId("turn"), !since.length && !run.length
    ? `No batch ran in the last ${span} s. A block appears for each batch of a query.`
    : `${names ? `Now: ${names}${run.length > 4 ? ` and ${run.length - 4} more` : ""}. ` : ""}${count(since.length)} batches in the last ${span} s.`);
}
