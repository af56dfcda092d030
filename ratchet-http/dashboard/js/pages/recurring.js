// The page of recurring definitions and their next slots.

import { action } from "../access.js";
import { get, part, post } from "../api.js";
import { badge, chip } from "../badges.js";
import { time } from "../clock.js";
import { confirm } from "../dialog.js";
import { h, put, quoted } from "../dom.js";
import { listen } from "../events.js";
import { duration } from "../format.js";
import { head, loading, tablePanel, trouble } from "../page.js";
import { go, way } from "../router.js";
import { table } from "../table.js";
import { attempt } from "../work.js";

const AGAIN_MS = 10_000;

export const title = "Recurring";

export function mount(view, { query, signal }) {
  let after = query.get("after") ?? "";
  let next = null;
  let turn = 0;
  const message = h("div");
  const more = h("div", { class: "bar end" });
  const rows = table({ caption: "Recurring jobs", key: (one) => one.name, columns: columns(load), empty: "There are no recurring definitions." });
  put(view, head("Recurring"), message, tablePanel(null, null, [rows.element, more]));
  put(message, loading("Reading the recurring jobs"));

  async function load() {
    turn += 1;
    const mine = turn;
    try {
      const answer = await get("api/recurring", { after }, signal);
      if (mine !== turn) return;
      put(message);
      next = answer.next;
      rows.set(answer.recurring);
      more.hidden = !next && !after;
      put(more,
        h("button", { type: "button", class: "button slim", disabled: !after, onclick: () => go(way(["recurring"])) }, "First page"),
        h("button", { type: "button", class: "button slim", disabled: !next, onclick: () => go(way(["recurring"], { after: next })) }, "Next page"));
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      rows.failed();
      put(message, trouble("The recurring jobs cannot be read", error, load));
    }
  }

  load();
  const timer = setInterval(() => { if (!document.hidden) load(); }, AGAIN_MS);
  const end = listen({ again: load });
  return {
    refresh: load,
    navigated: (changed) => { after = changed.get("after") ?? ""; load(); },
    unmount: () => { clearInterval(timer); end(); },
  };
}

function columns(load) {
  return [
    { name: "name", label: "Name", kind: "span", value: (one) => [one.name, one.declared], cell: (one) => [
      h("span", { class: "kind" }, one.name), one.declared && [" ", chip("declared", "gone", "A program with a node declares this definition")]] },
    { name: "state", label: "Fires", value: (one) => [one.paused, one.next_at === null], cell: (one) => (one.paused ? badge("paused") : one.next_at ? badge("active", "on") : badge("left", "ended")) },
    { name: "next", label: "Next", value: (one) => [one.next_at, one.paused], cell: (one) => (one.paused ? h("span", { class: "muted" }, "when resumed") : time(one.next_at, "never")) },
    { name: "last", label: "Last", value: (one) => one.last_at, cell: (one) => time(one.last_at, "never") },
    { name: "schedule", label: "Schedule", value: (one) => [one.schedule, one.zone, one.interval_ms], cell: (one) => (one.interval_ms
      ? [`every ${duration(one.interval_ms)}`]
      : [h("code", null, one.schedule), h("span", { class: "under" }, one.zone ?? "UTC")]) },
    { name: "job", label: "Job", value: (one) => [one.kind, one.queue], cell: (one) => [
      h("a", { href: way(["jobs"], { kind: one.kind }) }, one.kind), h("span", { class: "under" }, "in ", one.queue)] },
    { name: "missed", label: "If missed", value: (one) => [one.misfire, one.catch_up], cell: (one) => ({ skip: "skipped", fire_once: "fires once", catch_up: `catches up ${one.catch_up}` }[one.misfire] ?? one.misfire) },
    { name: "overlap", label: "If it still runs", value: (one) => [one.overlap, one.unique_key], cell: (one) => [
      { allow: "runs beside it", skip: "skipped" }[one.overlap] ?? one.overlap, one.unique_key && h("span", { class: "under" }, "by the key ", one.unique_key)] },
    { name: "do", label: "", kind: "tight span", value: (one) => [one.paused, one.kind], cell: (one) => h("div", { class: "buttons" }, trigger(one, load), toggle(one, load)) },
  ];
}

function trigger(one, load) {
  return action({ text: "Trigger", slim: true, label: `Trigger ${quoted(one.name)} now`, title: "Enqueues a job of this definition now; the schedule stays as it is", name: "trigger" }, async () => {
    if (!await confirm({ title: `Trigger ${quoted(one.name)} now?`, text: `A job ${quoted(one.kind)} is enqueued into ${quoted(one.queue)}. The schedule stays as it is.`, yes: "Trigger it" })) return;
    await attempt(`Could not trigger ${quoted(one.name)}`, async () => {
      const { job, created } = await post(`api/recurring/${part(one.name)}/trigger`);
      return [h("a", { href: way(["jobs", job]) }, created ? "Job enqueued" : "An earlier job of the definition has not ended")];
    });
    await load();
  });
}

function toggle(one, load) {
  const verb = one.paused ? "resume" : "pause";
  const text = one.paused ? "Resume" : "Pause";
  return action({ text, slim: true, label: `${text} ${quoted(one.name)}`, title: one.paused ? "Fires slots again, from the next slot on" : "Fires no more slots until it is resumed", name: verb }, async () => {
    if (!one.paused && !await confirm({ title: `Pause ${quoted(one.name)}?`, text: "The definition fires no more slots until it is resumed.", yes: "Pause it" })) return;
    await attempt(`Could not ${verb} ${quoted(one.name)}`, async () => {
      await post(`api/recurring/${part(one.name)}/${verb}`);
      return `${quoted(one.name)} is ${verb}d`;
    });
    await load();
  });
}
