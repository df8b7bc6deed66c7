// On every page: who is signed in, unseen results, theme, offline, results that come in elsewhere.
import "./clock.js";
import { Live } from "./live.js";
import { cookie, onReturn, texts, toast } from "./page.js";
import { pending } from "./pending.js";

const sale = document.querySelector("article[data-sale]")?.dataset.sale;

/** The personal bits: `{name, unseen, purchase}`. Nobody signed in: nothing is asked. */
export async function me() {
  const nobody = { name: null, unseen: 0, purchase: null };
  if (!cookie("signed_in")) {
    // Only public pages don't know by themselves who reads them.
    if (document.querySelector("[data-signed-out]")) show(nobody);
    return nobody;
  }
  const answer = await fetch(sale ? `/me/?sale=${sale}` : "/me/", { cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status}`);
  const bits = await answer.json();
  show(bits);
  return bits;
}

function show({ name, unseen }) {
  document.querySelectorAll("[data-signed-out]").forEach((node) => { node.hidden = Boolean(name); });
  document.querySelectorAll("[data-signed-in]").forEach((node) => { node.hidden = !name; });
  document.querySelectorAll("[data-name]").forEach((node) => { node.textContent = name ?? ""; });
  document.querySelectorAll("[data-unseen]").forEach((node) => {
    node.hidden = !unseen;
    node.querySelector(".num").textContent = unseen;
  });
}

// --- theme -----------------------------------------------------------------------------------------
const THEMES = ["", "light", "dark"];
const button = document.querySelector("[data-theme-switch]");

function paint() {
  const theme = document.documentElement.dataset.theme ?? "";
  button.querySelector("span").textContent = texts[theme || "auto"];
  button.title = texts[theme || "auto"];
}

button.hidden = false;
paint();
button.addEventListener("click", () => {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "") + 1) % THEMES.length];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  try { localStorage.setItem("theme", next); } catch { /* It holds for this page. */ }
  paint();
});

// --- menus, offline --------------------------------------------------------------------------------
document.addEventListener("click", (event) => {
  document.querySelectorAll("details.menu[open]").forEach((menu) => menu.contains(event.target) || menu.removeAttribute("open"));
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  document.querySelectorAll("details.menu[open]").forEach((menu) => { menu.removeAttribute("open"); menu.querySelector("summary").focus(); });
});

const banner = document.querySelector("[data-offline]");
const connection = () => { banner.hidden = navigator.onLine; };
addEventListener("online", connection);
addEventListener("offline", connection);
connection();

// --- purchases that end while their buyer looks at something else ------------------------------------
function result(frame) {
  const { purchase_id: id, redirect, sale_id: of } = frame.data;
  if (!pending.has(id)) return;
  pending.delete(id);
  if (frame.type === "purchase.succeeded") toast(texts.made, { href: redirect, text: texts.pay });
  else toast(texts.failed, { href: `/purchases/${of}/${id}/`, text: texts.why });
  me().catch(() => {});
}

// Pages about one sale or one purchase look after themselves.
if (!sale) {
  me().catch(() => {});
  onReturn(() => me().catch(() => {}));
}
if (!document.querySelector("#queue, #order") && cookie("signed_in") && pending.size) {
  new Live("/ws/v1/me", (frame) => frame.type.startsWith("purchase.") && result(frame));
}
