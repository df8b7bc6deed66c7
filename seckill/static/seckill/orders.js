// My orders: new when one of them changes.
import { Live } from "./live.js";
import { jitter, onReturn, renew } from "./page.js";

new Live("/ws/v1/me", (frame) => /^(order|purchase)\./.test(frame.type) && setTimeout(renew, jitter(500)));
document.addEventListener("time-up", () => setTimeout(renew, 1000 + jitter(1000)));
onReturn(renew);
