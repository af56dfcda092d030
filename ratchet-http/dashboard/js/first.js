// Sets the chosen theme before the first paint, so that the other theme does not flash. All other scripts
// are modules, which run later.
try {
  const theme = localStorage.getItem("ratchet.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be unavailable; then the system's setting decides.
}
