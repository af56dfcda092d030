// Runs before the first paint, so that a chosen theme does not flash. Everything else is a module.
try {
  const theme = localStorage.getItem("ratchet.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be unavailable; then the system's setting decides.
}
