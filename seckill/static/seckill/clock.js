// Local times and countdowns by the server's clock. The server decides; this only shows.
// `performance` is used throughout, so a wrong or changed device clock doesn't matter.
import { announce, texts, toast } from "./page.js";

const SAMPLES = 3;
const SYNC_EVERY = 60_000;
const FAR = 48 * 3_600_000; // what is further away is told by its date alone
const WARN = { plain: [[300, "m5"], [60, "m1"], [10, "s10"]], deadline: [[120, "m2"], [30, "s30"]] };

let ahead = null; // the server's time minus ours, in ms; errs late, never early
let syncing = null;
const told = new Map(); // for each moment, how many marks before it were passed

/** The server's time in ms, never early; NaN before anything is known. */
export const serverNow = () => performance.now() + (ahead ?? NaN);

/** Of some samples the one with the shortest trip; until the answer came, the server's time was past. */
export async function offset(ask = askServer, now = () => performance.now()) {
  let best = { trip: Infinity, offset: 0 };
  for (let i = 0; i < SAMPLES; i += 1) {
    const asked = now();
    const server = await ask();
    const trip = now() - asked;
    if (trip < best.trip) best = { trip, offset: server - asked - trip };
  }
  return best.offset;
}

async function askServer() {
  const answer = await fetch("/api/v1/time", { cache: "no-store" });
  return Date.parse((await answer.json()).now);
}

export function sync() {
  syncing ??= offset().then((found) => { ahead = found; }, () => {}).finally(() => { syncing = null; });
  return syncing;
}

/** 90061000 → "1:01:01:01"; 61000 → "1:01". */
export function digits(ms) {
  const seconds = Math.ceil(ms / 1000);
  const parts = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  while (parts.length > 2 && parts[0] === 0) parts.shift();
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : String(part))).join(":");
}

/** In the reader's own zone: short in cards and hints, to the second where it matters. */
function localise(node) {
  const at = new Date(node.dateTime);
  const short = { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" };
  const style = node.closest(".when, .hint") ? short : { dateStyle: "medium", timeStyle: "medium" };
  node.title = node.textContent;
  node.textContent = new Intl.DateTimeFormat(document.documentElement.lang, style).format(at);
  node.dataset.local = "";
}

function tick(node) {
  const left = Date.parse(node.dataset.until) - serverNow();
  if (Number.isNaN(left)) return;
  node.hidden = left > FAR;
  if (left > 0) {
    const shown = digits(left);
    const place = node.querySelector(".digits");
    if (place.textContent !== shown) place.textContent = shown;
    warn(node, left / 1000);
    return;
  }
  node.dataset.done = "";
  node.textContent = node.dataset.over;
  node.dispatchEvent(new CustomEvent("time-up", { bubbles: true }));
}

/** Tell at a few moments only, each once; a deadline in words that everybody sees. */
function warn(node, left) {
  if (!node.matches(".big")) return;
  const deadline = node.matches(".deadline");
  const marks = WARN[deadline ? "deadline" : "plain"];
  const passed = marks.filter(([at]) => left <= at).length;
  const before = told.get(node.dataset.until) ?? (deadline ? 0 : passed);
  if (passed > before) (deadline ? toast : announce)(texts[marks[passed - 1][1]]);
  node.classList.toggle("urgent", deadline && left <= 120);
  told.set(node.dataset.until, passed);
}

function beat() {
  document.querySelectorAll("time[datetime]:not([data-local])").forEach(localise);
  document.querySelectorAll(".countdown:not([data-done])").forEach(tick);
}

function start() {
  const told = Date.parse(document.body.dataset.now ?? "");
  // A kept page is a little old, so this errs late until the first answer.
  if (!Number.isNaN(told)) ahead = told - performance.now();
  beat();
  setInterval(beat, 200);
  const counting = () => document.querySelector(".countdown:not([data-done])");
  if (counting()) sync();
  setInterval(() => counting() && !document.hidden && sync(), SYNC_EVERY);
  document.addEventListener("visibilitychange", () => document.hidden || (counting() && sync()));
  addEventListener("pageshow", (event) => event.persisted && sync());
  addEventListener("online", sync);
}

if (typeof document !== "undefined") start();
