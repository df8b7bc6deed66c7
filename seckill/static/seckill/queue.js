// Waits for the outcome of a purchase: by websocket, and by polling, which is the truth.
const queue = document.getElementById("queue");
const progress = document.getElementById("progress");
const { sale, purchase } = queue.dataset;
const began = Date.now();
let ended = false;
let misses = 0;

function go(address) {
  if (ended) return;
  ended = true;
  location.replace(address);
}

/** The order's page, or this page again: it tells the cause of a failure. */
function conclude(outcome) {
  if (outcome.status === "succeeded" && outcome.order) go(`/orders/${outcome.order.id}/`);
  else if (outcome.status !== "queued") go(location.pathname);
}

async function poll() {
  let pause = 1000;
  try {
    const answer = await fetch(`/api/v1/sales/${sale}/purchases/${purchase}`, { cache: "no-store", headers: { Accept: "application/json" } });
    if (answer.status === 401 || answer.status === 403) return go(location.pathname);
    if (answer.ok) {
      const outcome = await answer.json();
      misses = 0;
      conclude(outcome);
      pause = outcome.poll_after_ms || pause;
    } else {
      misses += 1;
      pause = 1000 * Number(answer.headers.get("Retry-After") || 1);
    }
    if (Date.now() - began > 30000) progress.textContent = queue.dataset.still;
  } catch {
    misses += 1;
    progress.textContent = queue.dataset.offline;
  }
  if (!ended) setTimeout(poll, Math.min(5000, pause * 1.5 ** misses) * (0.8 + Math.random() * 0.4));
}

function listen() {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/me`);
  socket.addEventListener("message", (event) => {
    const frame = JSON.parse(event.data);
    if (frame.data?.purchase_id !== purchase) return;
    if (frame.type === "purchase.succeeded") go(frame.data.redirect);
    if (frame.type === "purchase.failed") go(location.pathname);
  });
}

listen();
setTimeout(poll, 300);
