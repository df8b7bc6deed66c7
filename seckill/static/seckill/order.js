// An order: shows itself anew when its state changes. Only the server says that time is up.
import { Live } from "./live.js";
import { jitter, renew } from "./page.js";
import { pending } from "./pending.js";

const article = () => document.getElementById("order");
const open = () => article().dataset.status === "0";
let asking = 0;

pending.delete(article().dataset.order);
document.querySelector("[data-focus]")?.focus({ preventScroll: true });

/** Ask again, more and more rarely, for as long as the order may still change. */
function follow(pause) {
  clearTimeout(asking);
  asking = setTimeout(async () => {
    const before = article().dataset.status;
    await renew();
    if (article().dataset.status !== before) document.querySelector("[data-focus]")?.focus();
    if (open()) follow(Math.min(15_000, pause * 1.5));
  }, pause + jitter(pause / 4));
}

if (open()) {
  new Live("/ws/v1/me", (frame) => {
    if (frame.type.startsWith("order.") && frame.data.order_id === article().dataset.order) follow(50);
  });
  follow(10_000);
}
document.addEventListener("time-up", () => follow(1000));
document.addEventListener("visibilitychange", () => document.hidden || !open() || follow(100));
addEventListener("online", () => open() && follow(100));
addEventListener("pageshow", (event) => event.persisted && follow(0));
