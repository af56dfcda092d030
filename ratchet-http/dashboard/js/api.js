// Requests to the API of this server, and their errors.

import { heard, heardRoughly } from "./clock.js";

const BASE = new URL("../", document.baseURI);
const TIMEOUT_MS = 20_000;

/** A failed request: an RFC 9457 problem, or no response at all. */
export class Problem extends Error {
  constructor({ title, detail, code, status, state, retryAfter }) {
    super(detail || title);
    this.title = title;
    this.detail = detail ?? "";
    this.code = code ?? "";
    this.status = status ?? 0;
    this.state = state ?? null;
    this.retryAfter = retryAfter ?? null;
  }
}

/** Returns the URL of a path below the API's root, such as `api/jobs`. */
export function address(path, query) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

/** Reads JSON. */
export function get(path, query, signal) {
  return read(path, query, signal);
}

/** Reads all pages of a list, and returns the last page with the items of all pages in `items`. */
export async function getAll(path, items, signal) {
  const all = [];
  let after = null;
  for (;;) {
    const page = await read(path, { after }, signal);
    all.push(...page[items]);
    if (!page.next) return { ...page, [items]: all };
    after = page.next;
  }
}

/** Reads JSON without rounding its numbers: payloads may have more digits than JavaScript can hold. */
export function getExact(path, query, signal) {
  return read(path, query, signal, exact);
}

async function read(path, query, signal, reviver) {
  try {
    const value = await send("GET", address(path, query), undefined, signal, reviver);
    record(() => failing.delete(path));
    return value;
  } catch (error) {
    if (!signal?.aborted && isOutage(error)) record(() => failing.add(path));
    throw error;
  }
}

/** Sends a write. */
export function post(path, body) {
  return send("POST", address(path), body);
}

/** Encodes a text with any characters as one segment of a path. */
export function part(text) {
  if (/^[.]{1,2}$/.test(text)) {
    // URL parsers treat `.` and `..` as steps in the path, even when written as %2e.
    throw new Problem({ title: "This name cannot be part of a URL", detail: `Use the command line to act on ${text}.`, code: "unreachable" });
  }
  return encodeURIComponent(text);
}

const failing = new Set();
const watchers = new Set();

/** Calls the listener whenever reads begin or cease to fail. */
export function watchReads(watcher) {
  watchers.add(watcher);
}

/** Forgets all failed reads, after the user has left the page or the connection is restored. */
export function forgetReads() {
  record(() => failing.clear());
}

/** Forgets that this read failed, because the page no longer depends on it. */
export function forgetRead(path) {
  record(() => failing.delete(path));
}

function record(change) {
  const before = failing.size > 0;
  change();
  if (failing.size > 0 !== before) for (const watcher of watchers) watcher(failing.size > 0);
}

/** Returns whether an error means that other reads would fail too, and not only this request. */
function isOutage(error) {
  return !(error instanceof Problem) || ![404, 422, 501].includes(error.status);
}

let most = Infinity;

/** Stores the maximum number of items on a page of a listing, from the server's status. */
export function learnMost(items) {
  most = items;
}

/** Returns whether a page may have this many items. */
export function pageMayHave(items) {
  return items <= most;
}

async function send(method, url, body, signal, reviver) {
  const request = { method, headers: { accept: "application/json, application/problem+json" }, cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers["content-type"] = "application/json";
  }
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  request.signal = signal ? AbortSignal.any([signal, limit]) : limit;
  let response;
  let text;
  try {
    response = await fetch(url, request);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = limit.aborted;
    throw new Problem({
      title: late ? "The request timed out" : "The server cannot be reached",
      detail: late ? `${url.pathname} did not answer within ${TIMEOUT_MS / 1000} s.` : `${url.pathname}: ${error.message}`,
      code: late ? "timeout" : "unreachable",
    });
  }
  heardRoughly(response.headers.get("date"));
  const value = parse(text, reviver);
  if (!response.ok) throw problem(response, value, text);
  if (value === undefined && text !== "") {
    throw new Problem({ title: "The response is not JSON", detail: `${url.pathname} returned another format.`, status: response.status, code: "malformed" });
  }
  if (value?.at) heard(value.at);
  return value;
}

function parse(text, reviver) {
  for (const way of reviver ? [reviver, undefined] : [undefined]) {
    try {
      return JSON.parse(text, way);
    } catch {
      // The text is nested too deeply for the exact parser, or is not JSON.
    }
  }
  return undefined;
}

function exact(_, value, context) {
  const rounded = typeof value === "number" && context?.source !== undefined && String(value) !== context.source;
  return rounded && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

function problem(response, value, text) {
  const given = value && typeof value === "object" ? value : {};
  return new Problem({
    title: given.title ?? `${response.status} ${response.statusText}`,
    detail: given.detail ?? (value === undefined ? text.slice(0, 300) : ""),
    code: given.code,
    status: response.status,
    state: given.state,
    retryAfter: response.headers.get("retry-after"),
  });
}
