// The page of nodes, leaders, locks and permits.

import { action } from "../access.js";
import { get, getAll, part, post } from "../api.js";
import { badge, chip } from "../badges.js";
import { time } from "../clock.js";
import { confirm } from "../dialog.js";
import { h, put, quoted } from "../dom.js";
import { listen } from "../events.js";
import { brief, bytes, duration, number } from "../format.js";
import { byUrgency, condition, isLost, knowNodes, nodeName } from "../nodes.js";
import { head, loading, tablePanel, trouble, warning } from "../page.js";
import { way } from "../router.js";
import { table } from "../table.js";
import { attempt } from "../work.js";

const AGAIN_MS = 5_000;
const SKEW_MS = 1_000;

export const title = "Cluster";

export function mount(view, { signal }) {
  const message = h("div");
  const alerts = h("div");
  const sub = h("span", { class: "sub" });
  const nodes = table({ caption: "Nodes", key: (node) => node.id, columns: nodeColumns(load), empty: "No node has ever started.", rowClass: (node) => (isLost(node) ? "bad" : "") });
  const leaders = table({ caption: "Leaders", key: (leader) => leader.role, columns: LEADERS, empty: "No role has a leader." });
  const locks = table({ caption: "Locks", key: (lock) => lock.name, columns: LOCKS, empty: "No lock was ever acquired." });
  const permits = table({ caption: "Permits", key: (permit) => permit.resource, columns: PERMITS, empty: "No resource has permits." });
  put(view, head("Cluster", {}, sub), message, alerts, h("div", { class: "stack" },
    tablePanel("Nodes", null, nodes.element),
    h("div", { class: "columns" },
      tablePanel("Leaders", h("span", { class: "muted small" }, "from the locks, by the database's clock"), leaders.element),
      tablePanel("Permits", null, permits.element)),
    tablePanel("Locks", null, locks.element)));
  put(message, loading("Reading the cluster"));

  async function load() {
    const [cluster, status, lockList, permitList] = await Promise.allSettled([
      getAll("cluster/nodes", "nodes", signal), get("cluster/status", null, signal), get("api/locks", null, signal), get("api/permits", null, signal)]);
    if (signal.aborted) return;
    put(message, [
      [cluster, "The nodes cannot be read"], [status, "The status cannot be read"], [lockList, "The locks cannot be read"], [permitList, "The permits cannot be read"],
    ].filter(([answer]) => answer.status === "rejected" && answer.reason.code !== "unsupported").map(([answer, what]) => trouble(what, answer.reason, load)));
    for (const [answer, rows] of [[cluster, nodes], [cluster, leaders], [lockList, locks], [permitList, permits]]) {
      if (answer.status === "rejected") rows.failed();
    }
    if (cluster.value) {
      knowNodes(cluster.value.nodes);
      nodes.set([...cluster.value.nodes].sort(byUrgency));
      leaders.set(cluster.value.leaders);
      put(alerts, cluster.value.nodes.filter((node) => Math.abs(node.clock_skew_ms ?? 0) > SKEW_MS).map((node) =>
        warning(`The clock of ${quoted(node.label)} is ${node.clock_skew_ms > 0 ? "ahead" : "behind"} by ${duration(Math.abs(node.clock_skew_ms))}`, "Jobs are not affected, because Ratchet uses the database's clock, but the times in the logs of the node are.")));
    }
    if (status.value) put(sub, summary(status.value));
    if (lockList.value) locks.set(lockList.value.locks);
    if (permitList.value) permits.set(permitList.value.permits);
  }

  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
  const end = listen({ nodes: load, again: load });
  return { refresh: load, unmount: () => { clearInterval(timer); end(); } };
}

function summary(status) {
  const parts = [status.backend, `version ${status.version}`, status.role];
  const versions = Object.entries(status.versions ?? {}).map(([name, version]) => `${name} ${version}`);
  return [parts.filter(Boolean).join(" · "), versions.length > 0 && h("span", { title: "Configuration versions" }, ` · ${versions.join(", ")}`)];
}

function nodeColumns(load) {
  return [
    { name: "label", label: "Node", kind: "span", value: (node) => [node.label, node.leads], cell: (node) => [
      h("span", { class: "kind" }, node.label), " ", h("span", { class: "muted mono", title: node.id }, brief(node.id)),
      node.leads?.length > 0 && h("span", { class: "badges" }, node.leads.map((role) => badge("lead", `leads ${quoted(role)}`)))] },
    { name: "status", label: "Status", value: (node) => [node.status, node.live], cell: (node) => [
      badge(condition(node)), condition(node) !== node.status && h("span", { class: "under" }, `was ${node.status}`)] },
    { name: "load", label: "Running", value: (node) => [node.running, node.capacity, node.live], cell: busy },
    { name: "process", label: "Process", title: "The processor time, memory and database connections of the node's process", rare: (node) => node.cpu_percent !== null || node.memory_bytes !== null, value: (node) => [node.cpu_percent, node.memory_bytes, node.connections], cell: uses },
    { name: "totals", label: "Done", kind: "number", title: "Since it started", value: (node) => node.totals, cell: totals },
    { name: "seen", label: "Heartbeat", value: (node) => [node.last_seen_at, node.heartbeat_ms, node.clock_skew_ms], cell: (node) => [time(node.last_seen_at), h("span", { class: "under nowrap" }, `every ${duration(node.heartbeat_ms)}`), skew(node)] },
    { name: "started", label: "Started", value: (node) => [node.started_at, node.zone_data], cell: (node) => [time(node.started_at), zones(node)] },
    { name: "offers", label: "Offers", kind: "span", value: (node) => [node.kinds, node.capabilities, node.open_breakers], cell: (node) => [offers(node), breakers(node)] },
    { name: "do", label: "", kind: "tight span", value: (node) => [node.status, node.live], cell: (node) => drain(node, load) },
  ];
}

function busy(node) {
  if (!node.live) return h("span", { class: "muted" }, "–");
  const percent = node.capacity > 0 ? Math.min(100, Math.round((100 * node.running) / node.capacity)) : 0;
  return h("div", { title: `${percent} % of its capacity` }, `${number(node.running)} of ${number(node.capacity)}`,
    h("div", { class: "meter in-table", role: "img", "aria-label": `${percent} % used` }, h("i", { css: { width: `${percent}%` } })));
}

function uses(node) {
  const parts = [node.memory_bytes !== null && bytes(node.memory_bytes), node.connections !== null && `${number(node.connections)} connections`];
  return [node.cpu_percent === null ? "–" : `${node.cpu_percent} % CPU`, h("span", { class: "under nowrap" }, parts.filter(Boolean).join(", "))];
}

/** Shows the clock skew of a node, which is known only for the node that serves the page. */
function skew(node) {
  if (node.clock_skew_ms === null || node.clock_skew_ms === undefined) return null;
  const sign = node.clock_skew_ms > 0 ? "+" : "";
  return h("span", { class: "under nowrap", title: "How far the node's clock is ahead of the database's clock" }, `clock ${sign}${duration(node.clock_skew_ms)}`);
}

function totals(node) {
  if (!node.totals) return "–";
  const { succeeded, failed, retried, begun, waited_ms } = node.totals;
  const wait = begun > 0 ? `, mean wait ${duration(waited_ms / begun)}` : "";
  return h("span", { title: `${number(begun)} begun, ${number(succeeded)} succeeded, ${number(retried)} retried, ${number(failed)} failed${wait}` },
    number(succeeded), failed > 0 && h("span", { class: "under" }, `${number(failed)} failed`));
}

/** Shows the time-zone data of a node, if the node reports it. */
function zones(node) {
  if (!node.zone_data) return null;
  const { version, source } = node.zone_data;
  return h("span", { class: "under nowrap", title: `Time-zone data: ${source}` }, `zones ${version ?? "unknown"}`);
}

/** Shows the kinds that the node does not run at present, because most of their attempts failed. */
function breakers(node) {
  if (!node.live || !node.open_breakers?.length) return null;
  return h("span", { class: "badges", title: "Circuit breakers that are open: the node claims no jobs of these kinds until a probe succeeds" },
    node.open_breakers.map((kind) => badge("paused", `breaker open: ${quoted(kind)}`)));
}

function offers(node) {
  const kinds = node.kinds ?? null;
  return h("details", null,
    h("summary", { class: "small" }, kinds === null ? "kinds not reported" : `${number(kinds.length)} ${kinds.length === 1 ? "kind" : "kinds"}`, node.capabilities?.length > 0 && ` · ${number(node.capabilities.length)} cap.`),
    h("div", { class: "badges" }, (kinds ?? []).map((kind) => h("a", { href: way(["jobs"], { kind }) }, chip(kind))), (node.capabilities ?? []).map((one) => chip(one, "held", "Capability")), (node.roles ?? []).map((role) => chip(`may lead ${quoted(role)}`, "gone"))));
}

function drain(node, load) {
  if (!node.live) return "";
  const why = node.status === "draining" ? "The node is draining already." : undefined;
  return action({ text: "Drain", slim: true, danger: true, why, label: `Drain ${quoted(node.label)}`, title: "The node claims no more jobs, finishes its running jobs and stops", name: "drain" }, async () => {
    const yes = await confirm({ title: `Drain ${quoted(node.label)}?`, text: ["The node claims no more jobs, finishes or releases its claimed jobs, and stops. It runs jobs again only after a restart.", `Node ${node.id}.`], yes: "Drain it", danger: true });
    if (!yes) return;
    await attempt("Could not drain the node", async () => {
      await post(`api/nodes/${part(node.id)}/drain`);
      return `${quoted(node.label)} will drain from its next heartbeat on`;
    });
    await load();
  });
}

const LEADERS = [
  { name: "role", label: "Role", value: (leader) => leader.role, cell: (leader) => h("span", { class: "word" }, leader.role) },
  { name: "node", label: "Leader", value: (leader) => [leader.node, leader.label], cell: (leader) => (leader.node ? [nodeName(leader.node, leader.label ?? undefined), " ", h("span", { class: "muted mono", title: leader.node }, brief(leader.node))] : badge("paused", "no leader")) },
  { name: "term", label: "Term", kind: "number", value: (leader) => leader.term, cell: (leader) => number(leader.term) },
  { name: "expires", label: "Lease ends in", kind: "number", value: (leader) => leader.expires_in_ms, cell: (leader) => duration(leader.expires_in_ms) },
];

const LOCKS = [
  { name: "name", label: "Lock", kind: "span", value: (lock) => lock.name, cell: (lock) => h("span", { class: "mono" }, lock.name) },
  { name: "owner", label: "Owner", value: (lock) => lock.owner, cell: (lock) => (lock.owner ? h("span", { class: "mono", title: lock.owner }, brief(lock.owner)) : h("span", { class: "muted" }, "free")) },
  { name: "fence", label: "Fence", kind: "number", value: (lock) => lock.fence, cell: (lock) => number(lock.fence) },
  { name: "expires", label: "Expires", kind: "number", value: (lock) => [lock.expires_in_ms, lock.expired_for_ms], cell: (lock) => (lock.expires_in_ms !== null ? `in ${duration(lock.expires_in_ms)}` : lock.expired_for_ms !== null ? `${duration(lock.expired_for_ms)} ago` : "–") },
];

const PERMITS = [
  { name: "resource", label: "Resource", value: (permit) => permit.resource, cell: (permit) => h("span", { class: "word" }, permit.resource) },
  { name: "held", label: "Held", kind: "number", value: (permit) => [permit.held, permit.max], cell: (permit) => `${number(permit.held)} of ${number(permit.max)}` },
];
