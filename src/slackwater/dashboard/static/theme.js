// Light, dark, or as the system has it. The choice is all that this page ever keeps beyond the tab.

import { byId, setText } from "./dom.js";

const KEY = "slackwater-theme";
const NAMES = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" };
const SAYS = { auto: "as the system has them", light: "light", dark: "dark" };
const listeners = [];

export const onTheme = (listener) => listeners.push(listener);

/** A colour of the style sheet as it is now, for what is drawn on a canvas. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function kept() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

function apply(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  const button = byId("theme");
  setText(button, NAMES[choice]);
  button.setAttribute("aria-label", `Colours: ${SAYS[choice]}`);
  button.dataset.choice = choice;
  for (const listener of listeners) listener();
}

export function startTheme() {
  const found = kept();
  apply(found in NAMES ? found : "auto");
  byId("theme").addEventListener("click", () => {
    const order = Object.keys(NAMES);
    const next = order[(order.indexOf(byId("theme").dataset.choice) + 1) % order.length];
    try { localStorage.setItem(KEY, next); } catch { /* private windows may refuse */ }
    apply(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => listeners.forEach((listener) => listener()));
}
