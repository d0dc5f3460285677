// What the page knows: filled by the stream of frames, read by all views. Lists are bounded.

const MOST_TURNS = 3000;
const MOST_LEFT = 6000;
const MOST_POINTS = 900;
const MOST_OWN = 40;
const SILENT_MS = 5000;
const AGAIN_MS = 2500;

export const store = {
  connection: { state: "waiting", since: Date.now() },
  application: null,
  t0: 0,
  now: null, // of the server, seconds since t0, at the last frame
  policy: null, parameters: {}, cores: 0, lanes: 0,
  memory: null, ruled: [], scheduler: null, late: [], shadow: null, advice: [],
  queries: [], byKey: new Map(),
  turns: [], left: [],
  heap: [], // [t, used, live, bound, max]
  rates: [], // [t, decisions, cpu_s]
  frames: 0,
};

const listeners = new Set();
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
const notify = () => { for (const listener of listeners) listener(store); };

/** Wall time of the server for a time in a frame. */
export const wall = (t) => store.t0 + t;

function takeWhole(frame) {
  const another = store.t0 !== frame.t0;
  store.t0 = frame.t0;
  store.application = frame.application;
  const before = store.byKey;
  store.queries = frame.queries.map(([key, name, ui], at) => ({
    ...(another ? null : before.get(key)), at, key, name, ui, latencies: [],
  }));
  store.byKey = new Map(store.queries.map((query) => [query.key, query]));
  store.turns = [];
  store.left = [];
  if (another) { store.heap = []; store.rates = []; }
  takeTick(frame);
}

function takeTick(frame) {
  store.now = frame.t;
  for (const name of ["policy", "parameters", "cores", "lanes", "memory", "ruled", "scheduler", "late", "shadow"]) store[name] = frame[name];
  if (frame.advice) store.advice = frame.advice; // a tick has it only when it changed
  for (const [at, stage, cls, state, latency, batches, dropped, reason, lane, since] of frame.rows) {
    const query = store.queries[at];
    if (query) Object.assign(query, { stage, cls, state, latency, batches, dropped, reason, turn: turnOf(query, stage, lane, since, reason) });
  }
  const [slack, low, high, lag, backlog] = frame.live;
  for (const query of store.queries) {
    query.slack = slack[query.at];
    query.low = low[query.at];
    query.high = high[query.at];
    query.lag = lag[query.at];
    query.backlog = backlog[query.at];
  }
  for (const [who, stage, lane, began, took, rows, waited, batch, reason] of frame.ran) {
    const query = typeof who === "number" ? store.queries[who] : null;
    store.turns.push({
      key: query ? query.key : null, name: query ? query.name : String(who),
      stage, lane, began, ended: began + took, took, rows, waited, batch, reason,
    });
  }
  for (const [who, t, latency] of frame.left) {
    const query = typeof who === "number" ? store.queries[who] : null;
    store.left.push({ key: query ? query.key : null, name: query ? query.name : String(who), t, latency });
    if (query) {
      query.latencies.push(latency);
      if (query.latencies.length > MOST_OWN) query.latencies.shift();
    }
  }
  bounded(store.turns, MOST_TURNS);
  bounded(store.left, MOST_LEFT);
  if (frame.memory) {
    const [used, live, max, bound] = frame.memory;
    store.heap.push([frame.t, used, live, bound, max]);
    bounded(store.heap, MOST_POINTS);
  }
  if (frame.scheduler) {
    store.rates.push([frame.t, frame.scheduler[2], frame.scheduler[4]]);
    bounded(store.rates, 15);
  }
  store.frames += 1;
}

/** The turn that a query has now, the same object for as long as it lasts; null: it has none. */
function turnOf({ key, name, turn }, stage, lane, since, reason) {
  if (lane === null || (stage !== "data batch" && stage !== "sweep batch")) return null;
  if (turn && turn.began === since && turn.stage === stage) return turn;
  return { key, name, stage, lane, began: since, reason, running: true };
}

function bounded(list, most) {
  if (list.length > most) list.splice(0, list.length - most);
}

function connected(state) {
  if (store.connection.state === state) return;
  store.connection = { state, since: Date.now() };
  notify();
}

let source = null;
let heardMs = 0;

/** Opens the stream and keeps it open: also after the server went and came again, or had no place for one more. */
export function connect() {
  if (source) source.close();
  heardMs = Date.now();
  source = new EventSource("/api/events");
  source.addEventListener("whole", (event) => take(event, takeWhole));
  source.addEventListener("tick", (event) => take(event, takeTick));
  source.addEventListener("error", () => {
    connected("lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, AGAIN_MS);
  });
}

function take(event, taking) {
  heardMs = Date.now();
  taking(JSON.parse(event.data));
  if (store.connection.state !== "live") store.connection = { state: "live", since: Date.now() };
  notify();
}

setInterval(() => {
  if (source && store.connection.state === "live" && Date.now() - heardMs > SILENT_MS) connected("silent");
  else if (store.connection.state !== "live") notify();
}, 1000);
