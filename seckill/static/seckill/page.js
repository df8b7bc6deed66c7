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

/** Fetch this page again and put its live parts in; resolves to the new document, or null. */
export function renew() {
  renewing ??= fetchPage().finally(() => { renewing = null; });
  return renewing;
}

async function fetchPage() {
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname !== location.pathname) location.replace(answer.url);
    if (!answer.ok) return null;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelectorAll("[data-live]").forEach((part) => replace(part, fresh.getElementById(part.id)));
    document.dispatchEvent(new CustomEvent("renewed", { detail: fresh }));
    return fresh;
  } catch {
    return null;
  }
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
