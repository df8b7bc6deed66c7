// One sale: the buy button in each of its states. The server decides; this asks it and tells.
import { serverNow } from "./clock.js";
import { Live } from "./live.js";
import { announce, cookie, jitter, onReturn, renew, sleep, texts, toast } from "./page.js";
import { pending } from "./pending.js";
import { me } from "./shop.js";
import { Token } from "./token.js";

const EVERY = { ready: 5000 }; // between two looks at the stock while somebody watches
const RARELY = 15_000; // the same while there is no stock to look at
const FRESH = 2500; // a page that was kept may not know yet what a frame told
const PATIENCE = 20_000; // how long one click goes on trying
const EARLY = 10 * 60_000; // before the start the small task is solved from here on
const article = document.querySelector("article[data-sale]");
const buy = document.getElementById("buy");
const control = buy.querySelector("[data-control]");
const note = document.getElementById("buy-note");
const form = buy.querySelector("form");
const { sale } = article.dataset;
const token = new Token(sale, buy.dataset);
let offered = buy.dataset.state; // what the page says to everybody
let purchase = null; // what this buyer has
let name = cookie("signed_in") ? "" : null; // null: nobody
let busy = false;
let leaving = false; // the answer is there, and the next page is on its way
let shown = offered;
let reopened = -Infinity; // when a frame said that stock is back
let unknown = false; // nobody could tell who is signed in

/** Show a state; `more` fills the `{}` of its note. */
function face(state, more = "") {
  const template = buy.querySelector(`template[data-face="${state}"]`);
  const had = control.contains(document.activeElement);
  note.textContent = template.dataset.note.replace("{}", more);
  if (state === shown && !more) return;
  shown = state;
  buy.dataset.shown = state;
  control.replaceChildren(template.content.cloneNode(true));
  const link = control.querySelector("[data-purchase]");
  if (link && purchase) link.href = purchase.url;
  if (had) control.querySelector("a, button").focus({ preventScroll: true });
  const label = template.dataset.label;
  buy.querySelector("[data-status]").textContent = `${label}. ${note.textContent}`;
}

/** The state by all that is known; while a click is under way it has the word. */
function show() {
  if (busy) return;
  if (!navigator.onLine) return face("offline");
  if (purchase?.state === "queued") return face("queueing");
  if (purchase?.state === "ordered") return face("bought");
  if (purchase?.state === "over" && offered !== "ended") return face("no_more");
  if (offered === "ended" || offered === "paused") return face(offered);
  if (name === null) return face("login_required");
  if (offered === "ready" && !token.ready && !token.failed && !unknown) return face("captcha");
  return face(offered);
}

async function look() {
  try {
    ({ purchase, name } = await me());
    unknown = false;
  } catch {
    unknown = true;
  }
  show();
  prepare();
}

/** Solve the small task and get the token, as long as there is time; it works from the start on. */
async function prepare() {
  const early = Date.parse(buy.dataset.starts) - serverNow() > EARLY;
  if (!name || purchase || early || offered === "ended") return;
  try {
    await token.get(name);
  } catch { /* The click tries again, and the plain form needs no token. */ }
  show();
}

// --- buying ------------------------------------------------------------------------------------------
async function send() {
  const headers = { Authorization: `Bearer ${await token.get(name)}`, "Content-Type": "application/json" };
  const quantity = Number(form.elements.quantity?.value ?? 1);
  const body = JSON.stringify({ quantity });
  const answer = await fetch(`/api/v1/sales/${sale}/purchases`, { method: "POST", headers, body });
  return { answer, said: await answer.json() };
}

/** The outcome by this token's own id: it tells even if an answer got lost. */
async function known() {
  const headers = { Authorization: `Bearer ${token.value}` };
  const answer = await fetch(`/api/v1/sales/${sale}/purchases/${token.purchase}`, { headers, cache: "no-store" });
  return answer.ok;
}

function go(address) {
  leaving = true;
  pending.add(address.split("/").at(-2));
  location.assign(address);
}

const queuePage = (id) => `/purchases/${sale}/${id}/`;

/** One try: true if it is over, else the milliseconds until the next one. */
async function attempt() {
  const { answer, said } = await send();
  if (answer.ok) { go(said.status === "succeeded" ? `/orders/${said.purchase_id}/` : queuePage(said.purchase_id)); return true; }
  const wait = 1000 * (said.retry_after ?? 1);
  switch (said.code) {
    case "sold_out":
    case "closed":
      if (await known()) { go(queuePage(token.purchase)); return true; }
      return over(said);
    case "rebuy_not_allowed":
      purchase = { state: "over" };
      return over(said);
    case "token_invalid":
    case "token_required":
      token.forget();
      return 200;
    case "login_required":
      name = null;
      return over(said);
    case "not_open":
    case "rate_limited":
    case "unavailable":
      face("wait", Math.ceil(wait / 1000));
      return wait + jitter(300);
    default:
      return over(said);
  }
}

function over(said) {
  announce(`${said.title}. ${said.detail}`);
  toast(said.detail);
  return true;
}

async function tryToBuy() {
  const until = performance.now() + PATIENCE;
  let wait = 0;
  while (wait !== true) {
    if (wait) await sleep(wait);
    if (performance.now() > until) return "trouble";
    try {
      wait = await attempt();
    } catch {
      // No answer: it may have been heard all the same. Asking again is harmless.
      wait = 500 + jitter(1500);
    }
    if (wait !== true && shown !== "wait") face("submitting");
  }
  return "";
}

form.addEventListener("submit", async (event) => {
  // The plain form does the same, without a token.
  if (shown === "trouble" || (shown === "ready" && !name)) return;
  event.preventDefault();
  if (busy || shown !== "ready" || !form.reportValidity()) return;
  busy = true;
  face("submitting");
  const trouble = await tryToBuy();
  if (leaving) return;
  busy = false;
  if (trouble) { face(trouble); return; }
  await renew();
  show();
});

// --- what changes by itself ----------------------------------------------------------------------------
document.addEventListener("renewed", ({ detail: fresh }) => {
  const theirs = fresh.getElementById("buy");
  if (!theirs) return;
  const before = offered;
  buy.dataset.starts = theirs.dataset.starts;
  offered = believe(theirs.dataset.state);
  for (const template of theirs.querySelectorAll("template")) {
    const { face: state, note: text } = template.dataset;
    buy.querySelector(`template[data-face="${state}"]`).dataset.note = text;
  }
  show();
  if (before !== offered) prepare();
});

/** A page may have been kept for a moment: what we know better by clock or frame stays. */
function believe(state) {
  if (state === "not_started" && serverNow() >= Date.parse(buy.dataset.starts)) return "ready";
  if (gone(state) && performance.now() - reopened < FRESH) return "ready";
  return state;
}

const gone = (state) => state === "sold_out" || state === "maybe_back";

/** The whole crowd hears of it in the same instant; each asks a little later than the others. */
function lookSoon() {
  setTimeout(renew, jitter(1000));
  setTimeout(renew, FRESH + jitter(500));
}

new Live(`/ws/v1/sales/${sale}`, (frame) => {
  if (frame.type === "sale.opened" && offered === "ready") return; // The clock here was first.
  if (frame.type === "sale.back_in_stock") back();
  if (frame.type === "sale.sold_out") reopened = -Infinity;
  if (frame.type.startsWith("sale.")) lookSoon();
  if (frame.type === "hello" && frame.data.state !== stateOf(offered)) lookSoon();
});

const stateOf = (face_) => ({ ready: "open", not_started: "scheduled", maybe_back: "sold_out", ended: "closed" })[face_] ?? face_;

function back() {
  reopened = performance.now();
  if (!gone(offered)) return;
  // A moment later for each, because all who watch hear of it in the same instant.
  setTimeout(() => renew().then(tellBack), jitter(500));
  // Opened at once: the click goes to the server, which decides. The page follows.
  offered = "ready";
  show();
  prepare();
  if (wanted() && "Notification" in window && Notification.permission === "granted") new Notification(texts.back, { body: document.title });
}

/** With the number that is left, if the page knows of it already. */
function tellBack(fresh) {
  const left = fresh?.querySelector("#standing .meter .ends span + span")?.textContent;
  toast(left ? `${texts.back}: ${left}` : texts.back);
}

document.addEventListener("time-up", () => {
  // The start: the button opens here, by a clock that errs late; only the question is spread.
  if (offered === "not_started") { offered = "ready"; announce(buy.querySelector('[data-face="ready"]').dataset.label); }
  show();
  prepare();
  setTimeout(renew, 1000 + jitter(300));
});

// --- tell me if it comes back ----------------------------------------------------------------------------
const KEY = `notify:${sale}`;
const wanted = () => { try { return localStorage.getItem(KEY) === "1"; } catch { return false; } };
const bell = document.querySelector("[data-notify]");
if (bell) {
  bell.hidden = false;
  bell.setAttribute("aria-pressed", String(wanted()));
  bell.addEventListener("click", async () => {
    const on = !wanted();
    try { localStorage.setItem(KEY, on ? "1" : "0"); } catch { /* It is shown here in any case. */ }
    bell.setAttribute("aria-pressed", String(on));
    if (on && "Notification" in window && Notification.permission === "default") await Notification.requestPermission();
  });
}

addEventListener("online", () => { show(); look(); renew(); });
addEventListener("offline", show);
// Somebody else may have signed in meanwhile: first a page that fits, then what is asked with it.
const lookAgain = () => renew().then(look);
onReturn(() => { busy = leaving = false; lookAgain(); });
document.addEventListener("visibilitychange", () => document.hidden || lookAgain());

async function watch() {
  for (;;) {
    await sleep((EVERY[offered] ?? RARELY) + jitter(1000));
    if (document.hidden || busy) continue;
    await renew();
    if (unknown) await look(); else prepare();
  }
}

show();
look();
watch();
