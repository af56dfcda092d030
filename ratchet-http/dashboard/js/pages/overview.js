// The overview page: load, rates, delays, and problems that need attention.

import { alarm } from "../alarm.js";
import { get } from "../api.js";
import { badge, STATES } from "../badges.js";
import { now, time } from "../clock.js";
import { h, put, quoted, renew } from "../dom.js";
import { listen } from "../events.js";
import { compact, decimal, duration, excerpt, number, oneUnit } from "../format.js";
import { byUrgency, condition, isLost, learnNodes, members, nodeName } from "../nodes.js";
import { head, loading, tablePanel, trouble, warning } from "../page.js";
import { plot } from "../plot.js";
import { way } from "../router.js";
import { table } from "../table.js";

const RANGES = [[5, "5 min"], [15, "15 min"], [60, "1 h"], [120, "2 h"]];
const READ_AGAIN_MS = 30_000;
const SOON_MS = 1_000;
const TRIES = 3;
/** The maximum age of counts that are plotted, as on the server. */
const COUNTS_GOOD_MS = 300_000;
const LATE_MS = 60_000;
const MOST_NODES = 24;

export const title = "Overview";

export function mount(view, { signal }) {
  let range = 15;
  let data = null;
  let points = [];
  let soon = 0;
  let tries = 0;
  let warned = "";
  const ranges = h("div", { class: "choice small", role: "group", "aria-label": "Time shown" }, RANGES.map(([minutes, text]) =>
    h("button", { type: "button", "aria-pressed": String(minutes === range), onclick: (event) => {
      range = minutes;
      for (const one of ranges.children) one.setAttribute("aria-pressed", String(one === event.currentTarget));
      drawPlots();
    } }, text)));
  const message = h("div");
  const alerts = h("div");
  const tiles = h("div", { class: "tiles" });
  const states = h("div", { class: "badges" });
  const plots = makePlots();
  const failures = table({
    caption: "Latest failures", key: (job) => job.id, columns: FAILURE_COLUMNS,
    empty: "No dead letters.",
  });
  const unread = h("div");
  const counted = h("span", { class: "sub" });
  const read = h("span", { class: "sub" });
  const nodes = h("div", { class: "badges" });
  const leaders = table({ caption: "Leaders", key: (leader) => leader.role, columns: LEADER_COLUMNS, empty: "No role has a leader." });
  const content = h("div", { hidden: true }, alerts, tiles,
    h("div", { class: "plots" }, plots.map((one) => one.element)),
    h("div", { class: "columns wide-left" },
      tablePanel("Latest dead letters", [read, h("a", { href: way(["jobs"], { state: "failed" }), class: "small" }, "All of them")], [unread, failures.element]),
      h("div", { class: "stack" },
        h("section", { class: "panel" }, h("div", { class: "top" }, h("h2", null, "Nodes"), h("span", { class: "spring" }), h("a", { href: way(["cluster"]), class: "small" }, "The cluster")), h("div", { class: "content" }, nodes)),
        h("section", { class: "panel" }, h("div", { class: "top" }, h("h2", { title: "Finished jobs are counted until retention removes them" }, "Jobs by state"), h("span", { class: "spring" }), counted), h("div", { class: "content" }, states)),
        tablePanel("Leaders", h("a", { href: way(["cluster"]), class: "small" }, "The cluster"), leaders.element))));
  put(view, head("Overview", {}, ranges), message, content);
  const waiting = loading("Reading the overview");
  put(message, waiting);

  async function load() {
    clearTimeout(soon);
    try {
      data = await get("api/overview", null, signal);
      alarm(data);
      put(message);
      content.hidden = false;
      points = (data.series?.points ?? []).map((point) => ({ ...point, moment: Date.parse(point.at) }));
      draw();
      drawFailures();
      // The server starts to read the dead letters after the first request, and then sends an event.
      if (data.failures) tries = 0;
      else if (tries < TRIES) soon = setTimeout(load, SOON_MS * 2 ** tries++);
    } catch (error) {
      if (signal.aborted) return;
      put(message, trouble("The overview cannot be read", error, load));
    }
  }

  async function loadNodes() {
    await learnNodes();
    const all = members()?.sort((one, other) => isLost(other) - isLost(one) || byUrgency(one, other));
    if (!all) return;
    put(nodes, all.slice(0, MOST_NODES).map((node) => h("a", { class: "node", href: way(["cluster"]), title: `${quoted(node.label)}, ${condition(node)}` },
      badge(condition(node), isLost(node) ? [node.label, ` ${condition(node)}`] : node.label))),
    all.length > MOST_NODES && h("span", { class: "muted" }, `and ${number(all.length - MOST_NODES)} more`),
    all.length === 0 && h("span", { class: "muted" }, "None is known."));
  }

  function drawFailures() {
    put(unread, data.failures ? null : loading("Reading the dead letters"));
    put(read, data.failures ? ["read ", time(data.failures_at)] : null);
    failures.element.hidden = !data.failures;
    failures.set(data.failures ?? []);
  }

  function draw() {
    const late = JSON.stringify(data.stranded);
    if (late !== warned) put(alerts, stranded(data.stranded));
    warned = late;
    renew(tiles, tilesOf(data));
    renew(states, STATES.map((state) => h("a", { href: way(["jobs"], { state }) }, badge(state, `${compact(data.counts?.[state])} ${state}`))));
    put(counted, data.counts_at ? ["counted ", time(data.counts_at)] : "not counted yet");
    leaders.set(data.leaders ?? []);
    drawPlots();
  }

  function drawPlots() {
    const to = Math.max(now(), points.at(-1)?.moment ?? 0);
    const from = to - range * 60_000;
    const shown = points.filter((point) => point.moment >= from);
    for (const one of plots) one.set(shown, from, to);
  }

  function ticked(tick) {
    if (!data) return;
    for (const name of ["at", "read_at", "stale", "live_nodes", "running", "capacity", "rates", "oldest_due_ms", "due_at", "nothing_runs", "stranded", "counts", "counts_at"]) {
      if (tick[name] !== undefined) data[name] = tick[name];
    }
    const moment = Date.parse(tick.at);
    const last = points.at(-1);
    if (!tick.stale && Number.isFinite(moment) && tick.rates && (!last || moment - last.moment >= (data.series?.step_ms ?? 1000) * 0.9)) {
      const counted = moment - Date.parse(data.counts_at) <= COUNTS_GOOD_MS;
      points.push({ ...tick.rates, pending: counted ? data.counts?.pending ?? null : null, running: data.running, overdue_ms: data.due_at ? data.oldest_due_ms ?? 0 : null, moment });
      while (points.length > 0 && moment - points[0].moment > 7_300_000) points.shift();
    }
    draw();
  }

  function failed({ at, jobs }) {
    if (!data) return;
    data.failures = jobs;
    data.failures_at = at;
    drawFailures();
  }

  function reload() {
    return Promise.all([load(), loadNodes()]);
  }

  reload();
  const timer = setInterval(() => { if (!document.hidden) reload(); }, READ_AGAIN_MS);
  const end = listen({ tick: ticked, failures: failed, nodes: reload, again: reload });
  return { refresh: reload, unmount: () => { clearInterval(timer); clearTimeout(soon); end(); } };
}

function tilesOf(data) {
  const { rates = {} } = data;
  const counts = data.counts ?? {};
  const used = data.capacity > 0 ? Math.round((100 * data.running) / data.capacity) : 0;
  const late = (data.oldest_due_ms ?? 0) > LATE_MS;
  const counted = data.counts_at ? `Counted at ${data.counts_at}` : "Not counted yet";
  return [
    tile({ name: "Finished", value: decimal(rates.finished_per_s), unit: "/s", note: `${decimal(rates.retried_per_s)} retried/s`, hint: "Jobs that ended per second, over all nodes", href: way(["jobs"], { state: "succeeded" }) }),
    tile({ name: "Wait before start", value: duration(rates.wait_ms), note: "mean, over all nodes", hint: "Mean time from the due time of recently started jobs until their claim" }),
    tile({ name: "Running", value: number(data.running), unit: ` of ${number(data.capacity)}`, meter: used, note: `${number(data.live_nodes)} live ${data.live_nodes === 1 ? "node" : "nodes"}`, tone: data.nothing_runs ? "bad" : null, hint: `${used} % of the capacity of all live nodes`, href: way(["jobs"], { state: "running" }) }),
    tile({ name: "Pending", value: compact(counts.pending), note: `${compact(counts.blocked)} blocked, ${compact(counts.paused)} paused`, hint: `${number(counts.pending)} jobs, due now or later. ${counted}`, href: way(["jobs"], { state: "pending" }) }),
    tile({ name: "Oldest due job", value: data.due_at && data.oldest_due_ms === null ? "none" : duration(data.oldest_due_ms), note: late ? "late" : data.due_at ? "time since it became due" : "not known at present", tone: late ? "warn" : null, hint: "Time since the oldest due job became due", href: way(["queues"]) }),
    tile({ name: "Dead letters", value: compact(counts.failed), note: `${decimal(rates.failed_per_s)} more/s`, tone: counts.failed > 0 ? "bad" : null, hint: `${number(counts.failed)} jobs have failed for good: retry or delete them. ${counted}`, href: way(["jobs"], { state: "failed" }) }),
  ];
}

function tile({ name, value, unit, note, hint, href, tone, meter }) {
  return h(href ? "a" : "div", { class: `tile${tone ? ` ${tone}` : ""}`, href, title: hint, "data-tile": name },
    h("div", { class: "name" }, name),
    h("div", { class: "value" }, value, unit && h("small", null, unit)),
    meter === undefined ? null : h("div", { class: "meter", role: "img", "aria-label": `${meter} % used` }, h("i", { css: { width: `${Math.min(100, meter)}%` } })),
    h("div", { class: "note" }, note));
}

function stranded(routes) {
  if (!routes?.length) return null;
  return warning(routes.length === 1 ? "One kind of job is due and no node can run it" : `${routes.length} kinds of jobs are due and no node can run them`,
    h("ul", null, routes.map((route) => h("li", null,
      h("a", { href: way(["jobs"], { kind: route.kind, queue: route.queue, state: "pending" }) }, route.kind),
      " in ", route.queue,
      route.capability && [", needs the capability ", route.capability],
      `: due for ${duration(route.overdue_ms)}`))));
}

function makePlots() {
  const per = (value) => `${decimal(value)}/s`;
  return [
    plot({ title: "Throughput", hint: "Jobs per second over all nodes", unit: per, lines: [
      { label: "finished", of: (point) => point.finished_per_s, unit: per },
      { label: "retried", of: (point) => point.retried_per_s, unit: per },
      { label: "failed", of: (point) => point.failed_per_s, unit: per },
    ] }),
    plot({ title: "Wait before start", hint: "Mean time from the due time of jobs until their claim", unit: oneUnit, lines: [
      { label: "mean", of: (point) => point.wait_ms, unit: duration },
    ] }),
    plot({ title: "Depth", hint: "Jobs waiting and running; jobs are counted only while a client reads", unit: compact, lines: [
      { label: "pending", missing: "pending jobs not counted: no client read", of: (point) => point.pending, unit: (value) => compact(Math.round(value)) },
      { label: "running", of: (point) => point.running, unit: (value) => compact(Math.round(value)) },
    ] }),
    plot({ title: "Oldest due job", hint: "Time since the oldest due job became due", unit: oneUnit, lines: [
      { label: "overdue", of: (point) => point.overdue_ms, unit: duration },
    ] }),
  ];
}

const FAILURE_COLUMNS = [
  { name: "kind", label: "Kind", value: (job) => [job.id, job.kind, job.queue], cell: (job) => [
    h("a", { class: "kind", href: way(["jobs", job.id]) }, job.kind), h("span", { class: "under" }, job.queue)] },
  { name: "count", label: "Equal", kind: "number", rare: (job) => job.count > 1, title: "Dead letters of this kind and queue with this error, among the newest 200", value: (job) => [job.count, job.kind, job.queue], cell: (job) => (job.count > 1
    ? h("a", { href: way(["jobs"], { state: "failed", kind: job.kind, queue: job.queue }) }, `${number(job.count)} ×`) : h("span", { class: "muted" }, "1 ×")) },
  { name: "error", label: "Error", kind: "span", value: (job) => job.last_error, cell: (job) => h("span", { class: "excerpt", title: job.last_error }, excerpt(job.last_error) || "–") },
  { name: "attempts", label: "Attempts", kind: "number", value: (job) => job.attempts, cell: (job) => number(job.attempts) },
  { name: "ended", label: "Ended", value: (job) => job.finished_at, cell: (job) => time(job.finished_at) },
];

const LEADER_COLUMNS = [
  { name: "role", label: "Role", value: (leader) => leader.role, cell: (leader) => h("span", { class: "word" }, leader.role) },
  { name: "node", label: "Node", value: (leader) => [leader.node, leader.label], cell: (leader) => (leader.node ? nodeName(leader.node, leader.label ?? undefined) : badge("paused", "no leader")) },
  { name: "term", label: "Term", kind: "number", value: (leader) => leader.term, cell: (leader) => number(leader.term) },
];
