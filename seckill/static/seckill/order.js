// Shows the order anew when its time is up or its state changes.
const article = document.querySelector("[data-order]");

function showAnew() {
  setTimeout(() => location.reload(), 500 + Math.random() * 1000);
}

if (article.dataset.status === "0") {
  const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/v1/me`);
  socket.addEventListener("message", (event) => {
    const frame = JSON.parse(event.data);
    if (frame.type.startsWith("order.") && frame.data.order_id === article.dataset.order) showAnew();
  });
  document.addEventListener("time-up", showAnew);
}
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
