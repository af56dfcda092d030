// The part of the address behind the `#` says which page there is and what it shows, so that the
// files may lie below any path.

/** The address of a page inside the dashboard. */
export function way(path, query) {
  const words = path.map(encodeURIComponent).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return `#/${words}${text ? `?${text}` : ""}`;
}

/** Where we are: the words of the path, and the query. */
export function here() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  let words;
  try {
    words = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    words = ["unknown"];
  }
  return { words: words.length > 0 ? words : ["overview"], query: new URLSearchParams(search ?? "") };
}

/** Goes to an address made by `way`. */
export function go(hash) {
  location.hash = hash;
}

/** Goes there without a step in the history. */
export function replace(hash) {
  history.replaceState(null, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Hears of every change of the address. */
export function watch(listener) {
  window.addEventListener("hashchange", listener);
}
