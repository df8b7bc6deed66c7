// What every page offers to the others: words, announcements, toasts, and its own renewal.
export const texts = JSON.parse(document.body.dataset.texts);

export const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });
export const jitter = (ms) => Math.random() * ms;

/** For screen readers; the same words twice in a row are told once. */
export function announce(text) {
  const place = document.querySelector("[data-announcer]");
  if (text && place.textContent !== text) place.textContent = text;
}

/** A short notice with a way to go; stays until it is closed if it has a link. */
export function toast(text, link) {
  const box = document.querySelector("[data-toasts]");
  const note = document.createElement("div");
  note.className = "toast";
  note.append(Object.assign(document.createElement("span"), { textContent: text }));
  if (link) note.append(Object.assign(document.createElement("a"), { href: link.href, textContent: link.text }));
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
  close.setAttribute("aria-label", texts.close);
  close.addEventListener("click", () => note.remove());
  note.append(close);
  box.append(note);
  while (box.children.length > 3) box.firstChild.remove();
  if (!link) setTimeout(() => note.remove(), 8000);
}

export const cookie = (name) => document.cookie.split("; ").find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1);
export const csrf = () => document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "";

let renewing = null;
let here = new AbortController();

// What was asked before the page was left says nothing about later.
addEventListener("pagehide", () => { here.abort(); here = new AbortController(); });

/** Call when the page was left and is shown again: kept whole, or from a copy that nobody asked about. */
export function onReturn(callback) {
  const [{ type } = {}] = performance.getEntriesByType("navigation");
  addEventListener("pageshow", ({ persisted }) => (persisted || type === "back_forward") && callback());
}

/** Fetch this page again and put its live parts in; resolves to the new document, or null. */
export function renew() {
  renewing ??= fetchPage().finally(() => { renewing = null; });
  return renewing;
}

async function fetchPage() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: here.signal });
    if (answer.redirected && new URL(answer.url).pathname !== location.pathname) location.replace(answer.url);
    if (!answer.ok) return null;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelectorAll("[data-live]").forEach((part) => replace(part, fresh.getElementById(part.id)));
    trust(fresh);
    document.dispatchEvent(new CustomEvent("renewed", { detail: fresh }));
    return fresh;
  } catch {
    return null;
  }
}

/** Signing in makes the tokens of pages from before worthless. */
function trust(fresh) {
  const token = fresh.querySelector("[name=csrfmiddlewaretoken]")?.value;
  if (token) document.querySelectorAll("[name=csrfmiddlewaretoken]").forEach((input) => { input.value = token; });
}

// What the server sent for each live part, before scripts touched it.
const sources = new WeakMap();
const source = (part) => part.outerHTML.replaceAll(/value="[A-Za-z0-9]{64}"/g, "");
document.querySelectorAll("[data-live]").forEach((part) => sources.set(part, source(part)));

/** Only what changed on the server is touched, so that focus and open details stay. */
function replace(part, fresh) {
  if (!fresh || sources.get(part) === source(fresh)) return;
  sources.set(part, source(fresh));
  const address = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  for (const { name, value } of fresh.attributes) if (name.startsWith("data-")) part.setAttribute(name, value);
  part.replaceChildren(...fresh.childNodes);
  if (address) part.querySelector(`[href="${CSS.escape(address)}"]`)?.focus({ preventScroll: true });
}
