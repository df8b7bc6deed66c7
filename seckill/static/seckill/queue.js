// Waits for the outcome of a purchase: the socket first; behind it polling, which is the truth.
import { Live } from "./live.js";
import { jitter, sleep } from "./page.js";
import { pending } from "./pending.js";

const SILENCE = 3000;
const LONG = 30_000;
const queue = document.getElementById("queue");
const progress = document.getElementById("progress");
const says = JSON.parse(queue.dataset.says);
const { sale, purchase } = queue.dataset;
const began = performance.now();
const places = [];
let ended = false;
let misses = 0;
let code = 0;

function go(address) {
  if (ended) return;
  ended = true;
  pending.delete(purchase);
  location.replace(address);
}

/** This page again: it leads to the order, or tells the cause of a failure. */
const again = () => go(location.pathname);

function say() {
  const waited = performance.now() - began;
  let text = says.accepted;
  if (misses && !code) text = says.lost;
  else if (waited > LONG) text = says.still;
  else if (code === 503) text = says.busy;
  else if (waited > 8000) text = says.slow;
  if (progress.textContent !== text) progress.textContent = text;
}

async function ask() {
  const answer = await fetch(`/api/v1/sales/${sale}/purchases/${purchase}`, { cache: "no-store", headers: { Accept: "application/json" } });
  code = answer.status;
  // Signed out, or nobody knows it any more: the page says so.
  if (code === 401 || (code === 404 && performance.now() - began > LONG)) again();
  const wait = 1000 * Number(answer.headers.get("Retry-After") ?? 0);
  if (!answer.ok) { misses += 1; return wait || 1000; }
  const outcome = await answer.json();
  misses = 0;
  if (outcome.status === "succeeded") go(`/orders/${outcome.order?.id ?? purchase}/`);
  else if (outcome.status === "failed") again();
  return outcome.poll_after_ms;
}

/** One question; the milliseconds until the next: what the server says, more after misses, jittered. */
async function poll() {
  let wait = 1000;
  try {
    wait = (await ask()) || 1000;
  } catch {
    misses += 1;
    code = 0;
  }
  say();
  return Math.min(5000, wait * 1.5 ** misses) * (0.8 + jitter(0.4));
}

async function place() {
  const answer = await fetch(queue.dataset.place, { cache: "no-store" });
  if (!answer.ok) return;
  const { ahead } = await answer.json();
  const box = document.getElementById("ahead");
  const style = { timeStyle: "medium" };
  const now = new Intl.DateTimeFormat(document.documentElement.lang, style).format(new Date());
  document.querySelector("[data-asof]").textContent = says.asof.replace("{}", now);
  box.hidden = ahead === null;
  if (ahead === null) return;
  box.querySelector("[data-ahead]").textContent = ahead;
  places.push([performance.now(), ahead]);
  box.querySelector("[data-eta]").textContent = ahead ? eta() : says.next;
}

function eta() {
  const [[t0, a0], [t1, a1]] = [places[0], places.at(-1)];
  if (a0 <= a1) return "";
  const seconds = (a1 * (t1 - t0)) / (a0 - a1) / 1000;
  const [text, unit] = seconds < 100 ? [says.eta, 1] : [says.minutes, 60];
  return `· ${text.replace("{}", [0.7, 1.5].map((part) => Math.ceil((seconds * part) / unit)).join("–"))}`;
}

const live = new Live("/ws/v1/me", (frame) => {
  if (frame.data?.purchase_id !== purchase) return;
  if (frame.type === "purchase.succeeded") go(frame.data.redirect);
  if (frame.type === "purchase.failed") again();
});

async function follow() {
  pending.add(purchase);
  await sleep(300);
  while (!ended) {
    // A socket that is there and was heard of lately tells by itself.
    const calm = live.connected && live.silence < SILENCE;
    const wait = calm ? SILENCE : await poll();
    say();
    if (!ended) await Promise.all([place().catch(() => {}), sleep(wait)]);
  }
}

addEventListener("pageshow", (event) => event.persisted && location.reload());
document.addEventListener("visibilitychange", () => document.hidden || ended || poll());
addEventListener("online", () => ended || poll());
follow();
