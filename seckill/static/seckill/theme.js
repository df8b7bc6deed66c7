// Runs before the first paint: scripts work, and which colours the visitor chose.
document.documentElement.classList.add("js");
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* A browser without storage follows the device. */ }
