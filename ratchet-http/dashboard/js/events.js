// The stream of live updates: one connection, which reconnects with backoff. Events are collected and
// delivered at most once per animation frame.

import { address } from "./api.js";
import { heard } from "./clock.js";

const SILENCE_MS = 15_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;
const MOST_JOBS_HELD = 2_000;

const listeners = new Set();
let source = null;
let pause = FIRST_PAUSE_MS;
let retryTimer = 0;
let silenceTimer = 0;
let state = { name: "connecting", retryAt: null };

let jobs = new Map();
let overflowed = 0;
let tick = null;
let nodes = false;
let failures = null;
let missed = 0;
let frame = 0;

/**
 * Statistics since the page was opened, for the console and for tests. `emit` handles an event as if the
 * server had sent it; `mute` ignores all further events.
 */
export const stream = { events: 0, jobs: 0, frames: 0, missed: 0, opened: 0, emit, mute };

/**
 * Subscribes to updates: `tick(data)`, `jobs(Map of id to job, number of jobs left out)`, `failures(data)`,
 * `nodes()`, `missed(number of events)`, `state(state)`, and `again()` after the connection is back.
 * Returns a function that unsubscribes.
 */
export function listen(listener) {
  listeners.add(listener);
  listener.state?.(state);
  return () => listeners.delete(listener);
}

/** Opens the stream. */
export function connect() {
  clearTimeout(retryTimer);
  source?.close();
  become({ name: stream.opened > 0 ? "lost" : "connecting", retryAt: null });
  source = new EventSource(address("api/events"));
  source.onopen = heardSomething;
  source.onerror = lost;
  for (const name of Object.keys(takers)) hear(name);
  silenceTimer = setTimeout(lost, SILENCE_MS);
}

const takers = {
  tick(data) {
    if (data.at) heard(data.at);
    tick = data;
  },
  jobs(data) {
    for (const job of data.jobs ?? []) {
      stream.jobs += 1;
      if (jobs.size >= MOST_JOBS_HELD && !jobs.has(job.id)) overflowed += 1;
      else jobs.set(job.id, job);
    }
    overflowed += data.dropped ?? 0;
  },
  failures(data) {
    failures = data;
  },
  nodes() {
    nodes = true;
  },
  lagged(data) {
    missed += data.missed ?? 1;
    stream.missed += data.missed ?? 1;
  },
};

function emit(name, data) {
  stream.events += 1;
  takers[name](data);
  if (frame === 0) frame = requestAnimationFrame(deliver);
}

function mute() {
  source?.close();
  source = null;
  clearTimeout(silenceTimer);
  clearTimeout(retryTimer);
}

function hear(name) {
  const mine = source;
  mine.addEventListener(name, (event) => {
    if (mine !== source) return;
    heardSomething();
    let data;
    try {
      data = event.data ? JSON.parse(event.data) : {};
    } catch {
      console.warn(`an event ${name} is not JSON`);
      return;
    }
    emit(name, data);
  });
}

function heardSomething() {
  clearTimeout(silenceTimer);
  silenceTimer = setTimeout(lost, SILENCE_MS);
  pause = FIRST_PAUSE_MS;
  if (state.name === "live") return;
  const again = stream.opened > 0;
  stream.opened += 1;
  become({ name: "live", retryAt: null });
  if (again) tell("again");
}

/** Closes the connection, and reconnects after a pause with jitter. */
function lost() {
  source?.close();
  source = null;
  clearTimeout(silenceTimer);
  clearTimeout(retryTimer);
  const wait = pause * (0.75 + Math.random() / 2);
  pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  retryTimer = setTimeout(connect, wait);
  become({ name: "lost", retryAt: performance.now() + wait });
}

function become(next) {
  state = next;
  tell("state", next);
}

function deliver() {
  frame = 0;
  stream.frames += 1;
  const batch = { jobs, overflowed, tick, failures, nodes, missed };
  jobs = new Map();
  overflowed = 0;
  tick = null;
  failures = null;
  nodes = false;
  missed = 0;
  if (batch.tick) tell("tick", batch.tick);
  if (batch.jobs.size > 0 || batch.overflowed > 0) tell("jobs", batch.jobs, batch.overflowed);
  if (batch.failures) tell("failures", batch.failures);
  if (batch.nodes) tell("nodes");
  if (batch.missed > 0) tell("missed", batch.missed);
}

function tell(what, ...values) {
  for (const listener of [...listeners]) {
    try {
      listener[what]?.(...values);
    } catch (error) {
      reportError(error);
    }
  }
}

// A hidden page needs no stream, and the server limits the number of listeners.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    mute();
  } else if (source === null) {
    connect();
  }
});
window.addEventListener("online", () => { if (state.name === "lost") connect(); });
window.addEventListener("pagehide", () => source?.close());
