// Forms that people type into: show the password, send once.
document.querySelectorAll("[data-reveal]").forEach((box) => {
  const input = box.querySelector("input");
  const button = box.querySelector("button");
  button.hidden = false;
  button.addEventListener("click", () => {
    const shown = input.type === "password";
    input.type = shown ? "text" : "password";
    button.setAttribute("aria-pressed", String(shown));
    box.querySelector("[data-on]").hidden = !shown;
    box.querySelector("[data-off]").hidden = shown;
    input.focus();
  });
});

document.querySelectorAll("main form[method=post]").forEach((form) => {
  let sent = false;
  form.addEventListener("submit", (event) => { if (sent) event.preventDefault(); sent = true; });
  addEventListener("pageshow", () => { sent = false; });
});
