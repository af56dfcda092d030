// The page of queues: job counts, delays and pauses.

import { action } from "../access.js";
import { getAll, part, post } from "../api.js";
import { badge, STATES } from "../badges.js";
import { time } from "../clock.js";
import { confirm } from "../dialog.js";
import { h, put, quoted } from "../dom.js";
import { listen } from "../events.js";
import { duration, number } from "../format.js";
import { head, loading, tablePanel, trouble } from "../page.js";
import { way } from "../router.js";
import { table } from "../table.js";
import { attempt } from "../work.js";

const AGAIN_MS = 5_000;

export const title = "Queues";

export function mount(view, { signal }) {
  const message = h("div");
  const counted = h("span", { class: "sub" });
  const rows = table({ caption: "Queues", key: (queue) => queue.name, columns: columns(load), empty: "No queue has had a job yet." });
  const panel = tablePanel(null, null, rows.element);
  panel.hidden = true;
  put(view, head("Queues", {}, counted), message, panel);
  put(message, loading("Reading the queues"));

  async function load() {
    try {
      const answer = await getAll("api/queues", "queues", signal);
      put(counted, answer.counts_at ? ["counted ", time(answer.counts_at)] : "not counted yet");
      put(message, answer.counts_at ? null : loading("The jobs are being counted"));
      panel.hidden = !answer.counts_at && answer.queues.length === 0;
      rows.set(answer.queues.map((queue) => ({ ...queue, due_at: answer.due_at })));
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
    { name: "paused", label: "Claims", value: (queue) => queue.paused, cell: (queue) => (queue.paused ? badge("paused") : badge("active", "open")) },
    { name: "overdue", label: "Oldest due job", kind: "number", title: "Time since the oldest due job became due", value: (queue) => [queue.overdue_ms, queue.due_at === null], cell: overdue },
    ...STATES.map(count),
    { name: "do", label: "", kind: "tight span", value: (queue) => queue.paused, cell: (queue) => toggle(queue, load) },
  ];
}

function overdue(queue) {
  if (queue.overdue_ms !== null) return duration(queue.overdue_ms);
  return queue.due_at === null ? h("span", { class: "muted", title: "Not known at present" }, "–") : h("span", { class: "muted" }, "none");
}

function toggle(queue, load) {
  const verb = queue.paused ? "resume" : "pause";
  const text = queue.paused ? "Resume" : "Pause";
  return action({
    text, slim: true, label: `${text} the queue ${quoted(queue.name)}`, name: verb,
    title: queue.paused ? "Lets nodes claim the jobs of the queue again" : "Nodes claim no jobs of the queue until it is resumed; running jobs continue",
  }, async () => {
    if (!queue.paused && !await confirm({ title: `Pause the queue ${quoted(queue.name)}?`, text: "Nodes claim no jobs of the queue until it is resumed. Running jobs continue.", yes: "Pause it" })) return;
    await attempt(`Could not ${verb} the queue`, async () => {
      const { changed } = await post(`api/queues/${part(queue.name)}/${verb}`);
      return changed ? `${quoted(queue.name)} is ${verb}d` : `${quoted(queue.name)} was ${verb}d before`;
    });
    await load();
  });
}
