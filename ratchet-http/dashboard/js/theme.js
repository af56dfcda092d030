// The theme, light or dark: that of the system until the user chooses one.

const KEY = "ratchet.theme";

/** Returns the theme in use. */
export function current() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Switches to the other theme, and stores the choice. */
export function toggle() {
  const next = current() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage, the choice lasts as long as the page.
  }
  return next;
}
