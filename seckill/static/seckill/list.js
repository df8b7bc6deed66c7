// The list of sales: tabs, and numbers that stay fresh while somebody looks.
import { jitter, onReturn, renew } from "./page.js";

const EVERY = 5000;
const bar = () => document.querySelector("[data-tabs]");
const tabs = () => [...(bar()?.querySelectorAll("a") ?? [])];
const panel = (tab) => document.querySelector(tab.hash);

function choose(chosen) {
  for (const tab of tabs()) {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    panel(tab).classList.toggle("current", tab === chosen);
  }
}

/** Links to sections become tabs; again after the server's part was put in anew. */
function enhance() {
  if (!bar() || bar().getAttribute("role")) return;
  bar().setAttribute("role", "tablist");
  for (const tab of tabs()) {
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", panel(tab).id);
    panel(tab).setAttribute("role", "tabpanel");
    panel(tab).querySelector("h2").classList.add("hidden");
  }
  choose(tabs().find((tab) => tab.hash === location.hash) ?? tabs()[0]);
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest("[data-tabs] a");
  if (!tab) return;
  event.preventDefault();
  history.replaceState(null, "", tab.hash);
  choose(tab);
});
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const place = tabs().indexOf(document.activeElement);
  if (!step || place < 0) return;
  event.preventDefault();
  const next = tabs().at((place + step) % tabs().length);
  history.replaceState(null, "", next.hash);
  choose(next);
  next.focus();
});
enhance();
document.addEventListener("renewed", enhance);
document.addEventListener("time-up", () => setTimeout(renew, 300 + jitter(700)));
onReturn(renew);
document.addEventListener("visibilitychange", () => document.hidden || renew());
setInterval(() => document.hidden || renew(), EVERY + jitter(1000));
