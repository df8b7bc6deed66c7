// Local times and countdowns by the server's clock. The server decides; this only shows.
const SAMPLES = 3;

/** The server's time minus ours, in ms; the sample with the shortest trip counts, and errs late. */
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

/** 90061000 → "1:01:01:01"; 61000 → "1:01". */
export function digits(ms) {
  const seconds = Math.ceil(ms / 1000);
  const parts = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  while (parts.length > 2 && parts[0] === 0) parts.shift();
  return parts.map((part, i) => (i ? String(part).padStart(2, "0") : String(part))).join(":");
}

function localise(node) {
  const at = new Date(node.dateTime);
  const style = { dateStyle: "medium", timeStyle: "medium" };
  node.title = node.textContent;
  node.textContent = new Intl.DateTimeFormat(document.documentElement.lang, style).format(at);
}

function tick(node, ahead) {
  const left = Date.parse(node.dataset.until) - (performance.now() + ahead);
  if (left > 0) {
    node.hidden = false;
    node.querySelector(".digits").textContent = digits(left);
    return true;
  }
  node.textContent = node.dataset.over;
  node.hidden = false;
  // A little later for each reader, so that they don't all ask in the same instant.
  setTimeout(() => document.dispatchEvent(new CustomEvent("time-up")), 300 + Math.random() * 700);
  return false;
}

async function start() {
  document.querySelectorAll("time[datetime]").forEach(localise);
  const running = new Set(document.querySelectorAll(".countdown"));
  if (!running.size) return;
  let ahead = await offset();
  const beat = () => running.forEach((node) => tick(node, ahead) || running.delete(node));
  beat();
  const timer = setInterval(() => (running.size ? beat() : clearInterval(timer)), 250);
  document.addEventListener("visibilitychange", async () => {
    if (!document.hidden && running.size) ahead = await offset();
  });
}

if (typeof document !== "undefined") start().catch(() => {});
