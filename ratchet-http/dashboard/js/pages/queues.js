// The page of queues: job counts, delays, pauses, and the limits and the busiest of fair keys.

import { action } from "../access.js";
import { get, getAll, part, post } from "../api.js";
import { badge, STATES } from "../badges.js";
import { time } from "../clock.js";
import { ask } from "../dialog.js";
import { h, put, quoted } from "../dom.js";
import { listen } from "../events.js";
import { duration, excerpt, number } from "../format.js";
import { head, loading, tablePanel, trouble } from "../page.js";
import { way } from "../router.js";
import { table } from "../table.js";
import { attempt } from "../work.js";

const AGAIN_MS = 5_000;
/** The maximum length of a reason. It is counted in bytes on the server. */
const MOST_REASON = 256;

export const title = "Queues";

export function mount(view, { signal }) {
  const message = h("div");
  const counted = h("span", { class: "sub" });
  const rows = table({ caption: "Queues", key: (queue) => queue.name, columns: columns(load), empty: "No queue has had a job yet." });
  const panel = tablePanel(null, null, rows.element);
  panel.hidden = true;
  const kinds = table({ caption: "Paused kinds", key: (pause) => pause.name, columns: kindColumns(load), empty: "No kind is paused." });
  const pausedKinds = tablePanel("Paused kinds", null, kinds.element);
  pausedKinds.hidden = true;
  const limits = table({ caption: "Limits of fair keys", key: (limit) => `${limit.queue}\n${limit.key ?? ""}`, columns: limitColumns(load), empty: "No fair key has a limit." });
  const limitPanel = tablePanel("Limits of fair keys", null, limits.element);
  limitPanel.hidden = true;
  put(view, head("Queues", {}, counted), message, panel, pausedKinds, limitPanel, busiestKeys(signal));
  put(message, loading("Reading the queues"));

  async function load() {
    try {
      const [answer, { pauses }, ofKeys] = await Promise.all([
        getAll("api/queues", "queues", signal), get("api/pauses", null, signal),
        get("api/fair-limits", null, signal).catch(unsupported)]);
      const ofQueues = new Map(pauses.filter((pause) => pause.scope === "queue").map((pause) => [pause.name, pause]));
      const ofKinds = pauses.filter((pause) => pause.scope === "kind");
      put(counted, answer.counts_at ? ["counted ", time(answer.counts_at)] : "not counted yet");
      put(message, answer.counts_at ? null : loading("The jobs are being counted"));
      panel.hidden = !answer.counts_at && answer.queues.length === 0;
      rows.set(answer.queues.map((queue) => ({ ...queue, due_at: answer.due_at, pause: queue.paused ? ofQueues.get(queue.name) : null })));
      pausedKinds.hidden = ofKinds.length === 0;
      kinds.set(ofKinds);
      limitPanel.hidden = ofKeys.limits.length === 0;
      limits.set(ofKeys.limits);
    } catch (error) {
      if (signal.aborted) return;
      rows.failed();
      put(message, trouble("The queues cannot be read", error, load));
    }
  }

  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
  const end = listen({ again: load });
  return { refresh: load, unmount: () => { clearInterval(timer); end(); } };
}

function columns(load) {
  const count = (state) => ({
    name: state, label: state[0].toUpperCase() + state.slice(1), kind: "number",
    value: (queue) => [queue.name, queue.counts?.[state]],
    cell: (queue) => {
      const many = queue.counts?.[state];
      if (many === undefined) return h("span", { class: "muted", title: "Not counted yet" }, "–");
      return many === 0 ? h("span", { class: "muted" }, "0") : h("a", { href: way(["jobs"], { queue: queue.name, state }) }, number(many));
    },
  });
  return [
    { name: "name", label: "Queue", kind: "span", value: (queue) => queue.name, cell: (queue) => h("a", { class: "kind", href: way(["jobs"], { queue: queue.name }) }, queue.name) },
    { name: "paused", label: "Claims", value: (queue) => [queue.paused, queue.pause], cell: (queue) => (queue.paused ? [badge("paused"), why(queue.pause)] : badge("active", "open")) },
    { name: "overdue", label: "Oldest due job", kind: "number", title: "Time since the oldest due job became due", value: (queue) => [queue.overdue_ms, queue.due_at === null], cell: overdue },
    ...STATES.map(count),
    { name: "do", label: "", kind: "tight span", value: (queue) => queue.paused, cell: (queue) => toggle(queue, load) },
  ];
}

function overdue(queue) {
  if (queue.overdue_ms !== null) return duration(queue.overdue_ms);
  return queue.due_at === null ? h("span", { class: "muted", title: "Not known at present" }, "–") : h("span", { class: "muted" }, "none");
}

/** Shows since when and by whom something is paused, and why. */
function why(pause) {
  if (!pause) return null;
  return h("span", { class: "under", title: pause.reason }, [pause.by && `by ${pause.by} `, time(pause.paused_at), pause.reason && `: ${excerpt(pause.reason)}`]);
}

function kindColumns(load) {
  return [
    { name: "name", label: "Kind", kind: "span", value: (pause) => pause.name, cell: (pause) => h("a", { class: "kind", href: way(["jobs"], { kind: pause.name, state: "pending" }) }, pause.name) },
    { name: "since", label: "Paused", value: (pause) => pause.paused_at, cell: (pause) => time(pause.paused_at) },
    { name: "by", label: "By", value: (pause) => pause.by, cell: (pause) => pause.by ?? h("span", { class: "muted" }, "–") },
    { name: "reason", label: "Reason", kind: "span", value: (pause) => pause.reason, cell: (pause) => h("span", { title: pause.reason }, excerpt(pause.reason) || "–") },
    { name: "do", label: "", kind: "tight span", value: (pause) => pause.name, cell: (pause) => action({
      text: "Resume", slim: true, label: `Resume the kind ${quoted(pause.name)}`, name: "resume",
      title: "Lets nodes claim the jobs of the kind again",
    }, async () => {
      await attempt("Could not resume the kind", async () => {
        const { changed } = await post(`api/kinds/${part(pause.name)}/resume`);
        return changed ? `${quoted(pause.name)} is resumed` : `${quoted(pause.name)} was resumed before`;
      });
      await load();
    }) },
  ];
}

/** Counts the jobs of fair keys when it is asked to, because this reads thousands of jobs. */
function busiestKeys(signal) {
  const rows = table({ caption: "Busiest fair keys", key: (key) => `${key.queue}\n${key.key}`, columns: KEYS, empty: "No job with a fair key runs or waits." });
  const said = h("span", { class: "sub" });
  const count = h("button", {
    type: "button", class: "button slim", "data-read": "fair-keys",
    title: "Counts at most 10,000 running jobs, and the waiting ones among the 10,000 newest jobs",
    onclick: async () => {
      await attempt("Could not count the jobs", async () => {
        const { keys, complete } = await get("api/fair-keys", { limit: 20 }, signal);
        panel.querySelector(".content").hidden = false;
        rows.set(keys);
        put(said, complete ? "all jobs" : "of the 10,000 newest jobs");
      });
    },
  }, "Count");
  const panel = tablePanel("Busiest fair keys", [said, count], rows.element);
  panel.querySelector(".content").hidden = true;
  return panel;
}

const KEYS = [
  { name: "queue", label: "Queue", kind: "span", value: (key) => key.queue, cell: (key) => h("a", { class: "kind", href: way(["jobs"], { queue: key.queue }) }, key.queue) },
  { name: "key", label: "Key", kind: "span", value: (key) => key.key, cell: (key) => key.key },
  { name: "running", label: "Running", kind: "number", value: (key) => key.running, cell: (key) => number(key.running) },
  { name: "waiting", label: "Waiting", kind: "number", value: (key) => key.waiting, cell: (key) => number(key.waiting) },
];

/** Shows no limits if the store cannot have any. */
function unsupported(error) {
  if (error.code === "unsupported") return { limits: [] };
  throw error;
}

function limitColumns(load) {
  return [
    { name: "queue", label: "Queue", kind: "span", value: (limit) => limit.queue, cell: (limit) => h("span", { class: "kind" }, limit.queue) },
    { name: "key", label: "Key", kind: "span", value: (limit) => limit.key, cell: (limit) => limit.key ?? h("span", { class: "muted" }, "each") },
    { name: "max", label: "At once", kind: "number", title: "How many jobs of the key may run at once", value: (limit) => limit.max, cell: (limit) => (limit.max === 0 ? badge("paused") : number(limit.max)) },
    { name: "do", label: "", kind: "tight span", value: (limit) => [limit.queue, limit.key], cell: (limit) => action({
      text: "Remove", slim: true, label: `Remove the limit of ${quoted(limit.key ?? limit.queue)}`, name: "remove-limit",
      title: "Lets any number of jobs of the key run at once",
    }, async () => {
      await attempt("Could not remove the limit", async () => {
        const { changed } = await post("api/fair-limits/set", { queue: limit.queue, key: limit.key, max: null });
        return changed ? "The limit is removed" : "The limit was removed before";
      });
      await load();
    }) },
  ];
}

function toggle(queue, load) {
  const verb = queue.paused ? "resume" : "pause";
  const text = queue.paused ? "Resume" : "Pause";
  return action({
    text, slim: true, label: `${text} the queue ${quoted(queue.name)}`, name: verb,
    title: queue.paused ? "Lets nodes claim the jobs of the queue again" : "Nodes claim no jobs of the queue until it is resumed; running jobs continue",
  }, async () => {
    const reason = queue.paused ? null : await ask({ title: `Pause the queue ${quoted(queue.name)}?`, text: "Nodes claim no jobs of the queue until it is resumed. Running jobs continue.", label: "Reason", most: MOST_REASON, yes: "Pause it" });
    if (!queue.paused && reason === null) return;
    await attempt(`Could not ${verb} the queue`, async () => {
      const { changed } = await post(`api/queues/${part(queue.name)}/${verb}`, reason ? { reason } : undefined);
      return changed ? `${quoted(queue.name)} is ${verb}d` : `${quoted(queue.name)} was ${verb}d before`;
    });
    await load();
  });
}
