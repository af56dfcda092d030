// The page of batches and their progress.

import { action } from "../access.js";
import { get, part, post } from "../api.js";
import { badge } from "../badges.js";
import { time } from "../clock.js";
import { confirm } from "../dialog.js";
import { h, put } from "../dom.js";
import { listen } from "../events.js";
import { brief, number } from "../format.js";
import { head, loading, tablePanel, trouble } from "../page.js";
import { go, way } from "../router.js";
import { table } from "../table.js";
import { attempt } from "../work.js";

const AGAIN_MS = 5_000;

export const title = "Batches";

export function mount(view, { query, signal }) {
  let before = query.get("before") ?? "";
  let next = null;
  let turn = 0;
  const message = h("div");
  const more = h("div", { class: "bar end" });
  const rows = table({ caption: "Batches", key: (batch) => batch.id, columns: columns(load), empty: "No batch is stored." });
  put(view, head("Batches", { sub: "newest first" }), message, tablePanel(null, null, [rows.element, more]));
  put(message, loading("Reading the batches"));

  async function load() {
    turn += 1;
    const mine = turn;
    try {
      const answer = await get("api/batches", { before }, signal);
      if (mine !== turn) return;
      put(message);
      next = answer.next;
      rows.set(answer.batches);
      more.hidden = !next && !before;
      put(more,
        h("button", { type: "button", class: "button slim", disabled: !before, onclick: () => go(way(["batches"])) }, "First page"),
        h("button", { type: "button", class: "button slim", disabled: !next, onclick: () => go(way(["batches"], { before: next })) }, "Next page"));
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      rows.failed();
      put(message, trouble("The batches cannot be read", error, load));
    }
  }

  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
  const end = listen({ again: load });
  return {
    refresh: load,
    navigated: (changed) => { before = changed.get("before") ?? ""; load(); },
    unmount: () => { clearInterval(timer); end(); },
  };
}

function columns(load) {
  const count = (name, label) => ({
    name, label, kind: "number", value: (batch) => batch[name],
    cell: (batch) => (batch[name] > 0 ? h("a", { href: way(["jobs"], { batch: batch.id, state: name }) }, number(batch[name])) : h("span", { class: "muted" }, "0")),
  });
  return [
    { name: "id", label: "Batch", value: (batch) => batch.id, cell: (batch) => h("a", { class: "mono", href: way(["jobs"], { batch: batch.id }), title: batch.id }, brief(batch.id)) },
    { name: "state", label: "State", value: (batch) => [batch.ended_at, batch.closed, batch.failed], cell: state },
    { name: "done", label: "Done", value: (batch) => [batch.total, batch.succeeded, batch.failed, batch.cancelled], cell: (batch) => parts(batch) },
    { name: "total", label: "Jobs", kind: "number", value: (batch) => batch.total, cell: (batch) => number(batch.total) },
    count("succeeded", "Succeeded"), count("failed", "Failed"), count("cancelled", "Cancelled"),
    { name: "unfinished", label: "Unfinished", kind: "number", value: (batch) => batch.unfinished, cell: (batch) => number(batch.unfinished) },
    { name: "created", label: "Created", value: (batch) => batch.created_at, cell: (batch) => time(batch.created_at) },
    { name: "ended", label: "Ended", value: (batch) => batch.ended_at, cell: (batch) => time(batch.ended_at) },
    { name: "do", label: "", kind: "tight span", value: (batch) => batch.ended_at, cell: (batch) => cancel(batch, load) },
  ];
}

function state(batch) {
  if (batch.ended_at) return batch.failed > 0 ? badge("failed", "ended, with failures") : badge("succeeded", "ended");
  return batch.closed ? badge("running", "closed, unfinished") : badge("pending", "open");
}

function parts(batch) {
  const share = (count) => ({ width: `${batch.total > 0 ? (100 * count) / batch.total : 0}%` });
  return h("div", { title: `${batch.percent} % of the jobs have ended` },
    h("span", { class: "small" }, `${batch.percent} %`),
    h("div", { class: "meter in-table", role: "img", "aria-label": `${batch.percent} % ended, ${batch.failed} failed` },
      h("i", { class: "good", css: share(batch.succeeded) }), h("i", { class: "bad", css: share(batch.failed) }), h("i", { class: "gone", css: share(batch.cancelled) })));
}

function cancel(batch, load) {
  const why = batch.ended_at ? "It has ended." : undefined;
  return action({ text: "Cancel", slim: true, danger: true, why, label: `Cancel the batch ${brief(batch.id)}`, title: "Cancels the unfinished jobs of the batch", name: "cancel" }, async () => {
    const yes = await confirm({ title: "Cancel this batch?", text: [`${number(batch.unfinished)} unfinished jobs are cancelled; handlers that run are asked to stop.`, batch.id], yes: "Cancel it", danger: true });
    if (!yes) return;
    await attempt("Could not cancel the batch", async () => {
      const answer = await post(`api/batches/${part(batch.id)}/cancel`);
      return `${number(answer.changed ?? 0)} jobs cancelled${answer.cancel_requested > 0 ? `, ${number(answer.cancel_requested)} asked to stop` : ""}`;
    });
    await load();
  });
}
