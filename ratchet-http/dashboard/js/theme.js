// Light or dark: as the system wishes until somebody chooses.

const KEY = "ratchet.theme";

/** The theme in use. */
export function current() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Takes the other one and remembers it. */
export function toggle() {
  const next = current() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // It then lasts as long as the page.
  }
  return next;
}
