// The entry point: shows the page that the address selects, and the parts that all pages share.

import { learn, watchAccess } from "./access.js";
import { alarm } from "./alarm.js";
import { forgetReads, get, learnMost, Problem, watchReads } from "./api.js";
import { time } from "./clock.js";
import { h, put } from "./dom.js";
import { connect, listen, stream } from "./events.js";
import { keys, list } from "./keys.js";
import { failed } from "./notices.js";
import { head } from "./page.js";
import * as batches from "./pages/batches.js";
import * as cluster from "./pages/cluster.js";
import * as job from "./pages/job.js";
import * as jobs from "./pages/jobs.js";
import * as overview from "./pages/overview.js";
import * as queues from "./pages/queues.js";
import * as recurring from "./pages/recurring.js";
import { here, watch, way } from "./router.js";
import { side } from "./side.js";
import { toggle } from "./theme.js";

const PAGES = { overview, jobs, queues, recurring, batches, cluster };
const STATUS_AGAIN_MS = 60_000;
const BANNER_AFTER_MS = 1_500;
const SLOW_MS = 1_000;

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const bar = side(document.getElementById("side"), { theme: toggle, help: list });
let shown = null;
let place = "";

function route(first) {
  const { words, query } = here();
  const next = words.slice(0, 2).join("/");
  const page = pageOf(words);
  bar.at(words[0]);
  if (next === place && shown?.navigated) {
    shown.navigated(query);
    return;
  }
  place = next;
  show(page, words, query, first);
}

function pageOf(words) {
  if (words[0] === "jobs" && words.length === 2) return job;
  return words.length === 1 && Object.hasOwn(PAGES, words[0]) ? PAGES[words[0]] : undefined;
}

function show(page, words, query, first) {
  shown?.unmount();
  shown?.abort.abort();
  forgetReads();
  const abort = new AbortController();
  window.scrollTo(0, 0);
  let mounted = null;
  try {
    mounted = page?.mount(main, { words, query, signal: abort.signal });
  } catch (error) {
    // The address contains a name that cannot be part of a URL of the API.
    if (!(error instanceof Problem)) throw error;
  }
  if (mounted) {
    document.title = `${page.title} · Ratchet`;
    shown = { ...mounted, abort };
  } else {
    document.title = "Not found · Ratchet";
    put(main, head("There is no such page"), h("p", null, h("a", { href: way(["overview"]) }, "To the overview")));
    shown = { unmount: () => {}, abort };
  }
  if (!first) main.querySelector("h1")?.focus({ preventScroll: true });
}

async function status() {
  try {
    const answer = await get("cluster/status");
    bar.about(answer);
    if (answer.writes !== undefined) learn(answer.writes);
    if (answer.page !== undefined) learnMost(answer.page);
  } catch {
    // The page itself shows the error, and the side bar the state of the connection.
  }
}

let lostTimer = 0;
/** The time of the server's last read from its database, if the server's data is out of date; otherwise null. */
let behind = null;
let link = "connecting";
let readsFail = false;

/** Updates the connection lamp. It is green only while updates arrive, reads succeed, and the server's data is fresh. */
function light() {
  bar.connection(link !== "live" ? link : readsFail ? "failing" : behind ? "old" : "live");
}

function heardOf({ stale, read_at: at }) {
  if ((stale ? at : null) === behind) return;
  behind = stale ? at : null;
  light();
  put(banner, behind ? aged(behind) : null);
  banner.hidden = !behind;
}

function aged(at) {
  return ["The server cannot read from its database. The page shows the state of ", time(at), "."];
}

function connection(state) {
  link = state.name;
  light();
  clearTimeout(lostTimer);
  if (state.name === "live") {
    put(banner, behind ? aged(behind) : null);
    banner.hidden = !behind;
  } else if (state.name === "lost") {
    lostTimer = setTimeout(() => {
      if (banner.hidden || behind) put(banner, "The connection to the server is lost. The page shows the last known state and keeps trying to reconnect.");
      banner.hidden = false;
    }, banner.hidden ? BANNER_AFTER_MS : 0);
  }
}

/** Draws the page again, for example after it has become known whether writes are accepted. */
function again() {
  const { words, query } = here();
  show(pageOf(words), words, query, true);
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("error", (event) => failed("The dashboard hit an internal error", event.error ?? event));
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name !== "AbortError") failed("The dashboard hit an internal error", event.reason);
});

keys({ page: () => shown, theme: toggle, refresh: () => shown?.refresh?.() });
watchAccess(again);
watchReads((fail) => {
  readsFail = fail;
  light();
});
listen({
  state: connection,
  tick: (tick) => {
    if (tick.counts) bar.failures(tick.counts.failed);
    heardOf(tick);
    alarm(tick);
  },
  again: () => {
    forgetReads();
    status();
  },
});
document.documentElement.ratchet = stream;
watch(() => route(false));
// Before the first page is drawn, read whether writes are accepted, unless the server is slow.
await Promise.race([status(), new Promise((resolve) => setTimeout(resolve, SLOW_MS))]);
setInterval(() => { if (!document.hidden) status(); }, STATUS_AGAIN_MS);
route(true);
connect();
