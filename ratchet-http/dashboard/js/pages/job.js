// The page of one job: its fields, attempts, workflow and actions.

import { action } from "../access.js";
import { get, getExact, part } from "../api.js";
import { badge, chip, tone } from "../badges.js";
import { now, time } from "../clock.js";
import { h, put, redraw } from "../dom.js";
import { listen } from "../events.js";
import { bytes, duration, number, pretty } from "../format.js";
import { graph } from "../graph.js";
import { learnNodes, nodeName } from "../nodes.js";
import { done } from "../notices.js";
import { facts, head, loading, panel, progressBar, trouble } from "../page.js";
import { go, way } from "../router.js";
import { ACTIONS, actOn } from "../work.js";

const AGAIN_MS = 1_000;
const RUNNING_AGAIN_MS = 3_000;
const GRAPH_AGAIN_MS = 3_000;
const MOST_KIN = 10;

export const title = "Job";

export function mount(view, { words, signal }) {
  const id = words[1];
  const path = `api/jobs/${part(id)}`;
  let job = null;
  let history = null;
  /** The last graph that was read, and the error if the last read failed. */
  let links = null;
  let linksAt = 0;
  let linksPending = 0;
  let linksTurn = 0;
  let readAt = 0;
  /** The scroll position that shows the job itself in the graph. */
  let centred = null;
  const unfolded = new Set();
  let pending = 0;
  let turn = 0;
  const slot = () => h("div", { class: "slot" });
  const slots = { head: slot(), message: slot(), graph: slot(), progress: slot(), error: slot(), attempts: slot(), data: slot(), facts: slot() };
  const signs = new Map();
  const opened = new Set();
  put(view, slots.head, slots.message, slots.graph, h("div", { class: "columns wide-left" },
    h("div", { class: "stack" }, slots.progress, slots.error, slots.attempts, slots.data), slots.facts));
  put(slots.head, head("Job"));
  put(slots.message, loading("Reading the job"));

  async function load() {
    clearTimeout(pending);
    pending = 0;
    turn += 1;
    const mine = turn;
    readAt = performance.now();
    const [detail, attempts] = await Promise.allSettled([
      getExact(path, null, signal), get(`${path}/history`, null, signal)]);
    if (signal.aborted || mine !== turn) return;
    if (detail.status === "rejected") {
      put(slots.message, trouble("The job cannot be read", detail.reason, reload));
      return;
    }
    job = detail.value;
    history = attempts;
    put(slots.message);
    saw(new Map([[id, job]]));
    draw();
  }

  async function loadLinks() {
    clearTimeout(linksPending);
    linksPending = 0;
    linksAt = performance.now();
    linksTurn += 1;
    const mine = linksTurn;
    let read;
    try {
      read = { value: await get(`${path}/graph`, null, signal) };
    } catch (error) {
      read = { value: links?.value, error };
    }
    if (signal.aborted || mine !== linksTurn) return;
    links = read;
    if (job) draw();
  }

  function reload() {
    return Promise.all([load(), loadLinks()]);
  }

  /** Reads the graph again when a job in it changes its state, which may decide links. */
  function saw(jobs) {
    const moved = (links?.value?.nodes ?? []).filter((node) => jobs.has(node.id) && jobs.get(node.id).state !== node.state);
    for (const node of moved) node.state = jobs.get(node.id).state;
    if (moved.length === 0) return;
    if (job) draw();
    linksSoon();
  }

  function linksSoon() {
    linksPending ||= setTimeout(loadLinks, Math.max(0, GRAPH_AGAIN_MS - (performance.now() - linksAt)));
  }

  /** Draws one part of the page if its data has changed, so that open details and selections elsewhere stay. */
  function fresh(name, of, make) {
    const sign = signOf(of);
    if (signs.get(name) === sign) return;
    signs.set(name, sign);
    redraw(slots[name], make());
  }

  function draw() {
    const { progress, last_error: error, payload, result, checkpoint, signal_payload: signalled, ...rest } = job;
    fresh("head", [job.kind, job.state, job.cancel_requested, job.actions], () => head(job.kind, {
      sub: [badge(job.state), job.cancel_requested && job.state === "running" ? [" ", chip("asked to stop", "warn")] : null],
    }, h("div", { class: "buttons" }, ACTIONS.map(offer))));
    fresh("progress", progress, () => progressPanel(progress));
    fresh("error", [error, job.state], () => failure(error, job.state));
    fresh("attempts", [history.value, history.reason?.message, job.state, job.attempts, job.claim_seq, job.state === "running" && Math.floor(now() / RUNNING_AGAIN_MS)], () => (history.status === "fulfilled"
      ? panel("Attempts", h("span", { class: "muted small" }, `${number(job.attempts)} of ${number(job.max_attempts)} used`), attempts(job, history.value.attempts, opened))
      : trouble("The attempts cannot be read", history.reason, reload)));
    fresh("data", [payload, result, checkpoint, signalled, job.payload_hidden], () => h("div", { class: "stack" },
      paper("Payload", payload, job.payload_hidden, job.payload_bytes), paper("Result", result), paper("Checkpoint", checkpoint), paper("Signal", signalled)));
    fresh("facts", [rest, links?.value], () => h("div", { class: "stack" }, about(job), limits(job), origin(job, links?.value)));
    drawGraph();
  }

  /** Draws the graph, and keeps the job itself in view unless the user has scrolled elsewhere. */
  function drawGraph() {
    const before = slots.graph.querySelector(".graph");
    const at = before && { left: before.scrollLeft, top: before.scrollTop };
    fresh("graph", [links?.value, links?.error?.message, unfolded.size], () => [
      links?.error && trouble("The workflow cannot be read", links.error, loadLinks), workflow(links?.value, job, unfolded, drawGraph)]);
    const frame = slots.graph.querySelector(".graph");
    if (!frame || frame === before) return;
    const moved = at && (at.left !== centred?.left || at.top !== centred?.top);
    if (moved) frame.scrollTo({ ...at, behavior: "instant" });
    else centred = centre(frame);
  }

  function offer(one) {
    const legal = job.actions?.includes(one.name) ?? one.from.includes(job.state);
    const why = legal ? undefined : `A job that is ${job.state} cannot be ${one.past}.`;
    return action({ text: one.text, title: one.meaning, danger: one.danger, why, name: one.name }, async () => {
      if (!await actOn(job, one)) return undefined;
      return one.name === "delete" ? go(way(["jobs"])) : load();
    });
  }

  function soon() {
    if (pending) return;
    pending = setTimeout(load, Math.max(0, AGAIN_MS - (performance.now() - readAt)));
  }

  load();
  loadLinks();
  learnNodes();
  const timer = setInterval(() => { if (job?.state === "running" && !document.hidden) load(); }, RUNNING_AGAIN_MS);
  const changed = (jobs) => {
    if (jobs.has(id)) soon();
    saw(jobs);
  };
  const end = listen({ jobs: changed, missed: () => { soon(); linksSoon(); }, again: reload });
  return { refresh: reload, unmount: () => { end(); clearInterval(timer); clearTimeout(pending); clearTimeout(linksPending); } };
}

/** Returns a text that differs if the value differs. For a value that is nested too deeply, it always differs. */
function signOf(value) {
  try {
    return JSON.stringify(value);
  } catch {
    return `${Math.random()}`;
  }
}

function progressPanel(progress) {
  if (!progress) return null;
  return panel("Progress", null, progressBar(progress.percent, "Progress of the job"), progress.message && h("p", { class: "muted" }, progress.message));
}

/** Shows the last error of the job, which is kept even if a later attempt succeeds. */
function failure(error, state) {
  if (!error) return null;
  const over = state === "succeeded";
  return panel(over ? "Error of an earlier attempt" : "Last error", over && h("span", { class: "muted small" }, "the job has succeeded since"),
    h("pre", { class: over ? "block" : "block bad", tabindex: "0" }, error));
}

/** Scrolls the job itself into the middle of the graph's frame, and returns the scroll position. */
function centre(frame) {
  const [outer, inner] = [frame, frame.querySelector(".this")].map((one) => one.getBoundingClientRect());
  frame.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
  frame.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
  return { left: frame.scrollLeft, top: frame.scrollTop };
}

function attempts(job, list, opened) {
  const current = job.state === "running" && job.claimed_at
    ? [{ seq: job.claim_seq, node: job.node, claimed_at: job.claimed_at, ended_at: null, ran_for_ms: null, outcome: "running", error: null }] : [];
  const all = [...list, ...current];
  if (all.length === 0) return h("p", { class: "muted" }, "Not claimed yet.");
  const from = Math.min(...all.map((one) => Date.parse(one.claimed_at)));
  const to = Math.max(from + 1, ...all.map((one) => (one.ended_at ? Date.parse(one.ended_at) : now())));
  return h("ol", { class: "attempts" }, [...all].reverse().map((one) => {
    const begin = Date.parse(one.claimed_at);
    const end = one.ended_at ? Date.parse(one.ended_at) : now();
    const left = (100 * (begin - from)) / (to - from);
    const wide = Math.min(100 - left, Math.max(0.6, (100 * (end - begin)) / (to - from)));
    return h("li", { class: "attempt" },
      h("div", { class: "row" },
        h("b", { title: "The number of the claim" }, `#${one.seq}`), badge(one.outcome), nodeName(one.node),
        h("span", { class: "spring" }),
        h("span", { class: "muted", title: one.ran_for_ms === null ? "From the claim to its end, or until now" : "How long the body ran" }, duration(one.ran_for_ms ?? end - begin)),
        time(one.claimed_at)),
      h("div", { class: "track", role: "img", "aria-label": `Claimed ${one.claimed_at}, ${one.ended_at ? `ended ${one.ended_at}` : "running"}` },
        h("i", { class: one.outcome === "running" ? "running" : `tone-${tone(one.outcome)}`, css: { left: `${Math.min(99.4, left)}%`, width: `${wide}%` } })),
      one.error && h("details", { open: opened.has(one.seq), ontoggle: (event) => opened[event.target.open ? "add" : "delete"](one.seq) },
        h("summary", { class: "small muted" }, "Error"), h("pre", { class: "block bad", tabindex: "0" }, one.error)));
  }));
}

function paper(name, value, hidden, size) {
  if (hidden) return panel(name, h("span", { class: "muted small" }, bytes(size)), h("p", { class: "muted" }, "Hidden: this API does not show payloads, results and checkpoints."));
  if (value === undefined) return null;
  const text = pretty(value);
  const copy = navigator.clipboard && h("button", { class: "button slim", type: "button", onclick: async () => {
    await navigator.clipboard.writeText(text);
    done(`${name} copied`);
  } }, "Copy");
  return panel(name, [size !== undefined && h("span", { class: "muted small" }, bytes(size)), copy], h("pre", { class: "block", tabindex: "0" }, text));
}

function about(job) {
  return panel("About", null, facts([
    ["Id", h("code", null, job.id)],
    ["Kind", h("a", { href: way(["jobs"], { kind: job.kind }) }, job.kind)],
    ["Queue", h("a", { href: way(["jobs"], { queue: job.queue }) }, job.queue)],
    ["Lane", job.lane, "Jobs of a lane run one after the other"],
    ["Priority", job.priority],
    ["Tags", job.tags?.length > 0 ? h("span", { class: "badges" }, job.tags.map((tag) => h("a", { href: way(["jobs"], { tag }) }, chip(tag)))) : null],
    ["Created", time(job.created_at)],
    ["Due", time(job.run_at)],
    ["Claimed", job.claimed_at && time(job.claimed_at)],
    ["Node", job.node && nodeName(job.node)],
    ["Ended", job.finished_at && [time(job.finished_at), job.expired ? ", expired" : null], job.expired ? "Had not begun before its expiry" : undefined],
    ["Expires", job.expires_at && time(job.expires_at), "Ends the job if it has not begun by then"],
    ["Claims", number(job.claim_seq), "How often the job was claimed"],
    ["Lost claims", job.crash_count > 0 ? number(job.crash_count) : null, "Claims whose node died"],
    ["Signal", job.signal && [job.signal.key, job.signal.delivered_at ? [", delivered ", time(job.signal.delivered_at)] : [", waits", job.signal.deadline_at ? [" until ", time(job.signal.deadline_at)] : null]]],
  ]));
}

function limits(job) {
  const { retry = {} } = job;
  const backoff = { none: "at once", fixed: `after ${duration(retry.delay_ms)}`, linear: `after ${duration(retry.delay_ms)} more each time`, exponential: `after ${duration(retry.delay_ms)}, doubling` }[retry.backoff] ?? retry.backoff;
  return panel("Limits", null, facts([
    ["Attempts", number(job.max_attempts)],
    ["Retried", retry.backoff && [backoff, retry.cap_ms ? `, at most ${duration(retry.cap_ms)}` : null, retry.jitter_percent ? `, ± ${retry.jitter_percent} %` : null]],
    ["Timeout", job.timeout_ms ? duration(job.timeout_ms) : null, "The timeout of one attempt"],
    ["Stall timeout", job.stall_timeout_ms ? duration(job.stall_timeout_ms) : null, "How long a body may run without a report"],
    ["Capability", job.capability, "A node must have this capability to run the job"],
    ["Permit", job.permit, "The job needs a permit for this resource to run"],
    ["Fair key", job.fair_key, "Claims take turns between fair keys"],
    ["Unique key", job.unique_key, "At most one unfinished job has this key"],
    ["Idempotency key", job.idempotency_key, "At most one job ever has this key"],
    ["Payload version", job.payload_version > 1 ? number(job.payload_version) : null],
    ["Trace", job.trace && h("code", null, job.trace.traceparent)],
  ]));
}

function origin(job, links) {
  const kin = (pick, other) => (links?.edges ?? []).filter((edge) => edge[pick] === job.id).map((edge) => {
    const node = links.nodes.find((one) => one.id === edge[other]);
    if (node?.type === "batch") return h("li", null, h("a", { href: way(["jobs"], { batch: node.id }) }, "a batch"));
    if (!node?.kind) return h("li", { class: "muted", title: edge[other] }, "a job that is no longer stored");
    return h("li", null, h("a", { href: way(["jobs", node.id]), title: node.id }, node.kind), " ", node.state && badge(node.state));
  });
  const [parents, children] = [kin("to", "from"), kin("from", "to")];
  if (!job.batch && !job.recurring && parents.length + children.length === 0) return null;
  return panel("Origin and links", null, facts([
    ["Batch", job.batch && h("a", { href: way(["jobs"], { batch: job.batch }) }, h("code", null, job.batch))],
    ["Recurring", job.recurring && [h("a", { href: way(["recurring"]) }, job.recurring.name), job.recurring.slot_at ? [", for ", time(job.recurring.slot_at)] : null]],
    ["After", kinList(parents)],
    ["Before", kinList(children)],
  ]));
}

function kinList(kin) {
  if (kin.length === 0) return null;
  return h("ul", null, kin.slice(0, MOST_KIN), kin.length > MOST_KIN && h("li", { class: "muted" }, `and ${number(kin.length - MOST_KIN)} more in the graph`));
}

function workflow(links, job, unfolded, draw) {
  if (!links || links.edges.length === 0) return null;
  const note = links.truncated ? `only the ${links.nodes.length} nearest nodes` : `${links.nodes.length} nodes`;
  return h("section", { class: "panel flush", css: { "margin-bottom": "16px" } },
    h("div", { class: "top" }, h("h2", null, "Workflow"), h("span", { class: "spring" }), h("span", { class: "muted small" }, note),
      unfolded.size > 0 && h("button", { type: "button", class: "button slim", "data-action": "fold", onclick: () => { unfolded.clear(); draw(); } }, "Fold")),
    graph(links, job.id, unfolded, (ids) => {
      for (const id of ids) unfolded.add(id);
      draw();
    }));
}
