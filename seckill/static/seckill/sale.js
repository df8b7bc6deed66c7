// Shows anew when the sale's state changes, and prevents a second click on "buy".
const article = document.querySelector("[data-sale]");
const form = article.querySelector("form.buy");
let busy = false;
let tries = 0;

form?.addEventListener("submit", () => {
  busy = true;
  form.querySelector("button").setAttribute("aria-disabled", "true");
});

function showAnew() {
  // Spread over a moment, so that all who watch don't ask at once.
  if (!busy) setTimeout(() => busy || location.reload(), 1000 + Math.random() * 1000);
}

function listen() {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/sales/${article.dataset.sale}`);
  socket.addEventListener("message", (event) => {
    const frame = JSON.parse(event.data);
    tries = 0;
    if (frame.type === "hello" && frame.data.state !== article.dataset.state) showAnew();
    if (frame.type.startsWith("sale.")) showAnew();
  });
  socket.addEventListener("close", () => {
    tries += 1;
    setTimeout(listen, Math.random() * Math.min(30000, 500 * 2 ** tries));
  });
}

document.addEventListener("time-up", showAnew);
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
listen();
