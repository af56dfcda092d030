// The fragment of the URL, after the `#`, selects the page and its parameters, so that the dashboard works
// below any path.

/** Returns the address of a page inside the dashboard. */
export function way(path, query) {
  const words = path.map(encodeURIComponent).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return `#/${words}${text ? `?${text}` : ""}`;
}

/** Returns the parts of the present address: the words of its path, and its query. */
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

/** Goes to an address that `way` returned. */
export function go(hash) {
  location.hash = hash;
}

/** Goes to an address without adding an entry to the browser's history. */
export function replace(hash) {
  history.replaceState(null, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Calls the listener on every change of the address. */
export function watch(listener) {
  window.addEventListener("hashchange", listener);
}
