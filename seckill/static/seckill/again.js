// An error that passes by itself: asks again unseen, and takes the reader along when it has passed.
import { jitter, sleep } from "./page.js";

const PASSES = new Set([429, 503]);

async function waitOut(seconds) {
  for (let wait = seconds; ; ) {
    await sleep(1000 * wait + jitter(1000));
    if (document.hidden) continue;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!PASSES.has(answer.status)) break;
      wait = Math.max(seconds, Number(answer.headers.get("Retry-After")));
    } catch { /* No answer: ask again. */ }
  }
  location.reload();
}

waitOut(Number(document.getElementById("error").dataset.wait));
