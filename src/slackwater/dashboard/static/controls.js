// What changes something: asks first, sends the token, says what came of it.

import { byId, el, toast } from "./dom.js";
import { store } from "./store.js";

const TOKEN = "slackwater-token";
let fallback = null; // where the tab's storage is refused

function kept() {
  try { return sessionStorage.getItem(TOKEN); } catch { return fallback; }
}

function keep(token) {
  fallback = token;
  try {
    if (token === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, token);
  } catch { /* kept for this page then */ }
}

/** A token in the address (#token=…) is taken once, and taken out of it. */
export function takeToken() {
  const found = /^#token=([^&]+)$/.exec(location.hash);
  if (!found) return;
  try { keep(decodeURIComponent(found[1])); } catch { /* cut off or mistyped: asked for when it is needed */ }
  history.replaceState(null, "", location.pathname);
}

/** Shows a dialog until it is left; true if by its button. `submit` may say why not yet. */
function asked(dialog, submit) {
  return new Promise((resolve) => {
    const form = dialog.querySelector("form");
    let done = false;
    const onsubmit = async (event) => {
      event.preventDefault();
      if (await submit()) { done = true; dialog.close(); }
    };
    const oncancel = () => dialog.close();
    const onclose = () => {
      form.removeEventListener("submit", onsubmit);
      dialog.querySelector("[data-cancel]").removeEventListener("click", oncancel);
      resolve(done);
    };
    form.addEventListener("submit", onsubmit);
    dialog.querySelector("[data-cancel]").addEventListener("click", oncancel);
    dialog.addEventListener("close", onclose, { once: true });
    dialog.showModal();
  });
}

async function askToken(why) {
  const dialog = byId("token"), input = byId("token-input"), error = byId("token-error");
  input.value = "";
  error.textContent = why ?? "";
  error.hidden = !why;
  return asked(dialog, () => {
    const given = input.value.trim();
    input.value = "";
    if (given) keep(given);
    return Boolean(given);
  });
}

/** Sends a change. Without a token, or with a wrong one, asks for it; false: given up. */
async function send(path, body) {
  let why = null;
  for (;;) {
    if (kept() === null && !(await askToken(why))) return false;
    const answer = await fetch(path, {
      method: "POST", headers: { authorization: `Bearer ${kept()}`, "content-type": "application/json" }, body: JSON.stringify(body),
    });
    if (answer.status === 401) {
      keep(null);
      why = "This is not the token of this application: nothing was changed.";
      continue;
    }
    if (!answer.ok) throw new Error(await reason(answer));
    return true;
  }
}

async function reason(answer) {
  try {
    const said = await answer.json();
    if (typeof said.error === "string") return said.error;
  } catch { /* not JSON */ }
  return answer.status === 404 ? "this application takes no such orders" : `the application answered ${answer.status}`;
}

/** Asks, sends, tells. `read` gives path and body when the button is pressed, or throws what is wrong. */
async function change({ title, text, fields = [], button, read, done }) {
  const dialog = byId("confirm"), error = byId("confirm-error"), ok = byId("confirm-ok");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-fields").replaceChildren(...fields);
  ok.textContent = button;
  error.hidden = true;
  const sent = await asked(dialog, async () => {
    ok.disabled = true;
    try {
      const [path, body] = read();
      return await send(path, body);
    } catch (problem) {
      error.textContent = problem instanceof TypeError ? "The application could not be reached; nothing is known to have changed." : problem.message;
      error.hidden = false;
      return false;
    } finally {
      ok.disabled = false;
    }
  });
  if (sent) toast(done());
  return sent;
}

export function pauseOrResume(query) {
  if (!query) return;
  const paused = query.stage === "paused";
  change({
    title: paused ? `Resume ${query.name}?` : `Pause ${query.name}?`,
    text: paused
      ? "It gets turns again from the next decision on."
      : "It gets no more turns until it is resumed; a batch that runs is finished. Whoever waits for its results waits as long.",
    button: paused ? "Resume" : "Pause",
    read: () => [paused ? "/api/resume" : "/api/pause", { query: query.key }],
    done: () => `${query.name} is ${paused ? "resumed" : "paused"}.`,
  });
}

export function changeClass(query) {
  const input = el("input", { type: "number", step: 1, min: -1000, max: 1000, required: true, value: query.cls ?? 0 });
  change({
    title: `Class of ${query.name}`,
    text: "Queries of a smaller class go before those of a greater one; 0 is usual.",
    fields: [el("label", {}, "Class ", input)],
    button: "Change",
    read: () => {
      const given = Number(input.value);
      if (!Number.isInteger(given)) throw new Error("A whole number is needed.");
      return ["/api/class", { query: query.key, class: given }];
    },
    done: () => `${query.name} is in class ${input.value}.`,
  });
}

async function policies() {
  try {
    const answer = await fetch("/api/policies");
    if (!answer.ok) return [];
    const said = await answer.json();
    return Array.isArray(said) ? said : said.policies ?? [];
  } catch {
    return [];
  }
}

export async function switchPolicy() {
  const known = await policies();
  const about = el("p", { class: "note" });
  const choice = known.length
    ? el("select", { required: true }, known.map(({ name }) => el("option", { value: name, selected: name === store.policy }, name)))
    : el("input", { type: "text", required: true, value: store.policy ?? "", autocomplete: "off", spellcheck: "false" });
  // What is in force stays, unless somebody changes it: an order without a parameter would set it to what is usual.
  const { knob: now, memory_bound: share, period_s: every } = store.parameters ?? {};
  const knob = el("select", {}, el("option", { value: "" }, "as usual"), ["cost", "balanced", "latency"].map((name) => el("option", { value: name, selected: name === now }, name)));
  const bound = el("input", { type: "number", min: 1, max: 100, step: "any", placeholder: "75", inputmode: "decimal", value: Number.isFinite(share) ? Number((100 * share).toFixed(2)) : null });
  const period = el("input", { type: "number", min: 0, step: "any", placeholder: "each decision", inputmode: "decimal", oninput: () => { given = true; } });
  let given = false;
  const tell = () => {
    about.textContent = known.find(({ name }) => name === choice.value)?.about ?? "";
    // A period may be the policy's own: another one has another.
    if (!given) period.value = choice.value === store.policy && Number.isFinite(every) ? every : "";
  };
  choice.addEventListener("change", tell);
  tell();
  change({
    title: "Switch the policy",
    text: `Now ${store.policy} decides. The other takes over at the next decision; batches that run are finished, and what was learnt stays.`,
    fields: [
      el("label", {}, "Policy ", choice), about,
      el("details", {}, el("summary", {}, "Parameters"),
        el("label", {}, "Knob ", knob), el("label", {}, "Memory rules from % of the heap ", bound), el("label", {}, "Ask it every s ", period),
        el("p", { class: "note" }, "Those that the policy takes; what is left empty is as usual.")),
    ],
    button: "Switch",
    read: () => {
      const body = { policy: choice.value };
      if (knob.value) body.knob = knob.value;
      if (bound.value) body.memory_bound = Number(bound.value) / 100;
      if (period.value) body.period_s = Number(period.value);
      return ["/api/policy", body];
    },
    done: () => `${choice.value} decides now.`,
  });
}
