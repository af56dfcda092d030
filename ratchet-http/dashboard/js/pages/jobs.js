// The page of jobs: filters, pages, live updates, and actions on chosen jobs.

import { action, readOnly } from "../access.js";
import { get, getAll, pageMayHave } from "../api.js";
import { badge, chip, meaning, STATES } from "../badges.js";
import { time } from "../clock.js";
import { h, put, quoted, redraw } from "../dom.js";
import { listen } from "../events.js";
import { brief, compact, excerpt, number } from "../format.js";
import { icon } from "../icons.js";
import { knownKinds, learnNodes, nodeName } from "../nodes.js";
import { head, loading, progressBar, tablePanel, trouble } from "../page.js";
import { go, way } from "../router.js";
import { table } from "../table.js";
import { ACTIONS, actOnAll, actOnMany } from "../work.js";

const SIZES = [25, 50, 100];
/** The default number of jobs on a page; the API may allow less. */
const USUAL = 50;
const TEXTS = [["queue", "Queue"], ["kind", "Kind"], ["tag", "Tag"], ["batch", "Batch"]];
/** The filters that suggest known values while the user types. */
const SUGGESTED = ["queue", "kind"];
const MOST_SUGGESTED = 500;
const COUNT_AGAIN_MS = 10_000;
const NAMES = ["state", "queue", "kind", "tag", "batch", "order", "limit"];

export const title = "Jobs";

export function mount(view, { query, signal }) {
  let filter = read(query);
  let next = null;
  let trail = [];
  let everything = false;
  let fresh = new Set();
  let turn = 0;
  /** Whether the shown jobs were read successfully for the present address. */
  let isRead = false;
  let fails = false;
  let counts = null;
  /** Aborts the count in progress; null while there is none. */
  let counting = null;
  const chosen = new Set();
  const all = h("input", { type: "checkbox", "aria-label": "Choose all jobs of this page", onchange: () => {
    chosen.clear();
    if (all.checked) for (const job of rows.items()) chosen.add(job.id);
    everything = false;
    rows.mark();
    drawBar();
  } });
  const rows = table({
    caption: "Jobs", key: (job) => job.id, columns: COLUMNS, empty: "No job matches.",
    choose: { chosen, all, describe: (job) => `${quoted(job.kind)} ${brief(job.id)}`, changed: () => { everything = false; rows.mark(); drawBar(); } },
    open: (job) => go(way(["jobs", job.id])),
  });
  const message = h("div");
  const filters = h("form", { class: "panel filters", role: "search", "aria-label": "Filter the jobs", onsubmit: (event) => { event.preventDefault(); apply(); } });
  const bar = h("div", { class: "bar", role: "toolbar", "aria-label": "What to do with jobs" });
  const more = h("div", { class: "bar end" });
  const inputs = new Map();
  const lists = new Map(SUGGESTED.map((name) => [name, h("datalist", { id: `suggested-${name}` })]));
  const tallies = new Map();
  put(view, head("Jobs"), filters, message, tablePanel(null, null, [bar, rows.element, more]), [...lists.values()]);
  drawFilters();

  function drawFilters() {
    inputs.clear();
    for (const state of STATES) tallies.set(state, h("span", { class: "tally" }));
    drawCounts();
    const states = h("div", { class: "choice", role: "group", "aria-label": "States" }, STATES.map((state) =>
      h("button", { type: "button", "aria-pressed": String(filter.states.includes(state)), title: meaning(state), "data-state": state, onclick: () => {
        const has = filter.states.includes(state);
        move({ states: STATES.filter((one) => (one === state ? !has : filter.states.includes(one))) });
      } }, icon(state), state, tallies.get(state))));
    const texts = TEXTS.map(([name, label]) => {
      const input = h("input", {
        name, value: filter[name], dir: "auto", autocomplete: "off", spellcheck: "false", maxlength: "128", onchange: apply,
        list: lists.get(name)?.id, onfocus: lists.has(name) ? suggest : null,
      });
      inputs.set(name, input);
      return h("label", { class: "field" }, label, input);
    });
    const order = select("Order", [["newest", "newest first"], ["oldest", "oldest first"]], filter.order, (value) => move({ order: value }));
    const sizes = SIZES.filter(pageMayHave);
    const size = sizes.length > 1 && select("Rows", sizes.map((one) => [String(one), String(one)]), String(filter.limit), (value) => move({ limit: Number(value) }));
    const any = filter.states.length > 0 || TEXTS.some(([name]) => filter[name]);
    const narrow = matchMedia("(max-width: 820px)").matches;
    put(filters, states, h("details", { open: !narrow || TEXTS.some(([name]) => filter[name]) },
      h("summary", null, "Queue, kind, tag, batch, order"),
      h("div", { class: "fields" }, texts, order, size,
        any && h("button", { type: "button", class: "button", onclick: () => go(way(["jobs"])) }, "Clear"),
        h("button", { type: "submit", class: "sr-only" }, "Filter"))));
  }

  /** Suggests the queues and kinds that the server knows or that occur in the shown rows. */
  async function suggest() {
    // If a read fails, fewer values are suggested, and the connection lamp shows that reads fail.
    const [queues] = await Promise.allSettled([getAll("api/queues", "queues", signal), learnNodes()]);
    const offer = (name, known) => put(lists.get(name), [...new Set(known)].sort().slice(0, MOST_SUGGESTED).map((value) => h("option", { value })));
    const shown = rows.items();
    offer("kind", [...knownKinds(), ...shown.map((job) => job.kind)]);
    offer("queue", [...(queues.value?.queues ?? []).map((queue) => queue.name), ...shown.map((job) => job.queue)]);
  }

  /** Starts a new count. Aborts a count in progress, so that only one runs at a time. */
  async function count() {
    counting?.abort();
    const mine = new AbortController();
    counting = mine;
    const { queue, kind, tag, batch } = filter;
    let read = null;
    try {
      read = await get("api/jobs/counts", { queue, kind, tag, batch }, AbortSignal.any([signal, mine.signal]));
    } catch {
      // If the count fails, the buttons show no numbers, and the connection lamp shows that reads fail.
    }
    if (signal.aborted || mine !== counting) return;
    counting = null;
    counts = read;
    drawCounts();
  }

  function drawCounts() {
    for (const [state, tally] of tallies) {
      const found = counts?.counts[state];
      tally.textContent = found ? `${compact(found.jobs)}${found.exact ? "" : "+"}` : "";
      tally.title = found ? `${found.exact ? "" : "at least "}${number(found.jobs)} jobs${counts.counts_at ? `, counted at ${counts.counts_at}` : ""}` : "";
    }
  }

  function apply() {
    const texts = Object.fromEntries(TEXTS.map(([name]) => [name, inputs.get(name).value.trim()]));
    if (TEXTS.some(([name]) => texts[name] !== filter[name])) move(texts);
  }

  function move(change) {
    go(address({ ...filter, after: "", ...change }));
  }

  function navigated(nextQuery) {
    const focused = document.activeElement?.name ?? document.activeElement?.dataset?.state;
    const before = filter;
    filter = read(nextQuery);
    if (NAMES.some((name) => String(before[name]) !== String(filter[name])) || String(before.states) !== String(filter.states)) trail = [];
    if (TEXTS.some(([name]) => before[name] !== filter[name])) {
      counts = null;
      count();
    }
    isRead = false;
    chosen.clear();
    everything = false;
    all.checked = false;
    drawFilters();
    if (focused) filters.querySelector(`[name="${CSS.escape(focused)}"], [data-state="${CSS.escape(focused)}"]`)?.focus();
    load();
  }

  async function load() {
    turn += 1;
    const mine = turn;
    if (rows.items().length === 0) put(message, loading("Reading jobs"));
    try {
      const answer = await get("api/jobs", { ...wire(filter), after: filter.after, limit: filter.limit === USUAL || !pageMayHave(filter.limit) ? "" : filter.limit, order: filter.order }, signal);
      if (mine !== turn) return;
      put(message);
      isRead = true;
      fails = false;
      next = answer.next;
      fresh = new Set();
      for (const id of [...chosen]) if (!answer.jobs.some((job) => job.id === id)) chosen.delete(id);
      rows.set(answer.jobs);
      rows.mark();
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      fails = true;
      // Remove the rows of the previous filter, which would look like matching jobs.
      if (!isRead) {
        next = null;
        rows.set([]);
      }
      rows.failed();
      put(message, trouble("The jobs cannot be read", error, load));
    }
    drawBar();
    drawMore();
  }

  function drawBar() {
    const many = chosen.size;
    const shown = rows.items();
    all.checked = many > 0 && many === shown.length;
    all.indeterminate = many > 0 && many < shown.length;
    const why = many === 0 ? "Choose jobs first: by their boxes, or with the key x." : undefined;
    const offered = ACTIONS.map((one) => action({ text: one.text, title: one.meaning, danger: one.danger, slim: true, why, name: `bulk-${one.name}` }, () => bulk(one)));
    redraw(bar,
      h("span", { class: "muted", "data-chosen": many }, said(many, shown.length)),
      many > 0 && many === shown.length && (next || filter.after) && !everything && !readOnly() &&
        h("button", { type: "button", class: "button slim", "data-action": "everything", onclick: () => { everything = true; drawBar(); } }, "Choose all that match"),
      h("span", { class: "spring" }),
      h("div", { class: "buttons" }, offered));
  }

  function said(many, shown) {
    if (everything) return "All that match are chosen";
    if (many > 0) return `${number(many)} chosen`;
    if (shown === 0 && (fails || !isRead)) return fails ? "Not known" : "No answer yet";
    return `${number(shown)} ${shown === 1 ? "job" : "jobs"} on this page`;
  }

  function drawMore() {
    redraw(more,
      h("button", { type: "button", class: "button slim", disabled: !filter.after, onclick: back, "data-action": "back" }, "Back"),
      h("button", { type: "button", class: "button slim", disabled: !next, onclick: on, "data-action": "on" }, "Next page"),
      h("span", { class: "spring" }),
      fresh.size > 0 && h("button", { type: "button", class: "button slim", "data-action": "fresh", onclick: () => (filter.after ? go(address({ ...filter, after: "" })) : load()) },
        `${number(fresh.size)}${fresh.size >= 1000 ? " or more" : ""} new, show`),
      h("span", { class: "muted small" }, filter.after ? "a later page" : "the first page"));
  }

  function on() {
    if (!next) return;
    trail.push(filter.after);
    go(address({ ...filter, after: next }));
  }

  function back() {
    if (filter.after) go(address({ ...filter, after: trail.pop() ?? "" }));
  }

  async function bulk(one) {
    const picked = rows.items().filter((job) => chosen.has(job.id));
    const went = everything ? await actOnAll(body(filter), words(filter), one) : await actOnMany(picked, one);
    if (went === null) return;
    if (went) {
      chosen.clear();
      everything = false;
    }
    await Promise.all([load(), count()]);
  }

  function changed(jobs) {
    let news = false;
    for (const [id, job] of jobs) {
      if (rows.patch(id, job)) {
        if (chosen.has(id)) rows.mark();
      } else if (filter.order === "newest" && !filter.after && fresh.size < 1000 && isNew(id) && fits(job, filter)) {
        news ||= !fresh.has(id);
        fresh.add(id);
      }
    }
    if (news) drawMore();
  }

  /** Returns whether a job is newer than the first row: ids begin with their time, so its id is greater. */
  function isNew(id) {
    const first = rows.items()[0];
    return !first || id > first.id;
  }

  function reload() {
    return Promise.all([load(), count()]);
  }

  drawBar();
  drawMore();
  reload();
  learnNodes();
  // The timer repeats only background counts (with `counts_at`). Counts that were made for one request are
  // repeated when the user reloads. A count in progress is not restarted, or a slow one would never end.
  const timer = setInterval(() => { if (!document.hidden && !counting && (!counts || counts.counts_at)) count(); }, COUNT_AGAIN_MS);
  const counted = (tick) => {
    const isNarrow = filter.kind || filter.tag || filter.batch;
    if (tick.counts_at && !counting && counts && !counts.counts_at && !isNarrow) count();
  };
  const end = listen({ tick: counted, jobs: changed, again: reload, nodes: learnNodes, missed: load });
  return {
    refresh: reload, navigated, back, on,
    search: () => {
      filters.querySelector("details").open = true;
      inputs.get("kind").focus();
      inputs.get("kind").select();
      return true;
    },
    unmount: () => { clearInterval(timer); end(); },
  };
}

function select(label, options, value, change) {
  return h("label", { class: "field" }, label, h("select", { name: label.toLowerCase(), onchange: (event) => change(event.target.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text))));
}

function read(query) {
  const limit = Number(query.get("limit"));
  return {
    states: (query.get("state") ?? "").split(",").filter((state) => STATES.includes(state)),
    queue: query.get("queue") ?? "", kind: query.get("kind") ?? "", tag: query.get("tag") ?? "", batch: query.get("batch") ?? "",
    order: query.get("order") === "oldest" ? "oldest" : "newest",
    after: query.get("after") ?? "",
    limit: SIZES.includes(limit) ? limit : USUAL,
  };
}

function wire({ states, queue, kind, tag, batch }) {
  return { state: states.join(","), queue, kind, tag, batch };
}

function address(filter) {
  const { order, limit, after } = filter;
  return way(["jobs"], { ...wire(filter), order: order === "newest" ? "" : order, limit: limit === USUAL ? "" : limit, after });
}

function body({ states, queue, kind, tag, batch }) {
  const filter = { states: states.length > 0 ? states : undefined, queue: queue || undefined, kind: kind || undefined, tag: tag || undefined, batch: batch || undefined };
  return JSON.parse(JSON.stringify(filter));
}

function words({ states, queue, kind, tag, batch }) {
  const parts = [
    states.length > 0 ? `state ${states.join(" or ")}` : "any state",
    queue && `queue ${quoted(queue)}`, kind && `kind ${quoted(kind)}`, tag && `tag ${quoted(tag)}`, batch && `batch ${batch}`,
  ];
  return `Jobs with ${parts.filter(Boolean).join(", ")}.`;
}

function fits(job, filter) {
  return (filter.states.length === 0 || filter.states.includes(job.state))
    && (!filter.queue || job.queue === filter.queue)
    && (!filter.kind || job.kind === filter.kind)
    && (!filter.tag || (job.tags ?? []).includes(filter.tag))
    && (!filter.batch || job.batch === filter.batch);
}

function when(job) {
  if (job.state === "running") return ["claimed", job.claimed_at];
  if (job.finished_at) return ["ended", job.finished_at];
  return [job.state === "pending" ? "due" : "created", job.state === "pending" ? job.run_at : job.created_at];
}

function detail(job) {
  if (job.state === "running" && job.progress) {
    return [progressBar(job.progress.percent, `Progress of ${quoted(job.kind)}`), job.progress.message && h("span", { class: "under excerpt", title: job.progress.message }, job.progress.message)];
  }
  if (job.last_error && job.state === "succeeded") {
    return [h("span", { class: "under" }, "an earlier attempt failed:"), h("span", { class: "excerpt muted", title: job.last_error }, excerpt(job.last_error))];
  }
  if (job.expired) return h("span", { class: "muted" }, "expired before it began");
  if (job.last_error) return h("span", { class: "excerpt", title: job.last_error }, excerpt(job.last_error));
  if (job.state === "blocked" && job.signal) return h("span", { class: "muted" }, "waits for the signal ", job.signal.key);
  return "";
}

const COLUMNS = [
  { name: "state", label: "State", kind: "tight", value: (job) => [job.state, job.cancel_requested], cell: (job) => [
    badge(job.state), job.cancel_requested && job.state === "running" && h("span", { class: "under" }, "asked to stop")] },
  { name: "kind", label: "Kind", value: (job) => [job.id, job.kind, job.tags], cell: (job) => [
    h("a", { class: "kind", href: way(["jobs", job.id]), title: job.id }, job.kind),
    h("span", { class: "second" }, h("span", { class: "muted mono nowrap", title: job.id }, brief(job.id)),
      (job.tags ?? []).map((tag) => h("a", { href: way(["jobs"], { tag }) }, chip(tag, "wait", `Tag ${quoted(tag)}`))))] },
  { name: "queue", label: "Queue", value: (job) => [job.queue, job.lane], cell: (job) => [
    h("a", { class: "word", href: way(["jobs"], { queue: job.queue }) }, job.queue), job.lane && h("span", { class: "under cut", title: `Lane ${quoted(job.lane)}` }, "lane ", job.lane)] },
  { name: "priority", label: "Priority", value: (job) => job.priority, cell: (job) => h("span", { class: job.priority === "normal" ? "muted" : "kind" }, job.priority) },
  { name: "attempts", label: "Attempts", kind: "number", title: "The attempts that ended, and the maximum", value: (job) => [job.attempts, job.max_attempts, job.crash_count], cell: (job) => [
    `${number(job.attempts)} of ${number(job.max_attempts)}`, job.crash_count > 0 && h("span", { class: "under", title: "Claims lost to dead nodes" }, `${number(job.crash_count)} lost`)] },
  { name: "when", label: "Time", value: (job) => when(job), cell: (job) => [time(when(job)[1]), h("span", { class: "under" }, when(job)[0])] },
  { name: "node", label: "Node", rare: (job) => job.state === "running", value: (job) => (job.state === "running" ? job.node : null), cell: (job) => (job.state === "running" && job.node ? nodeName(job.node) : "") },
  { name: "detail", label: "Progress or error", kind: "span", value: (job) => [job.state, job.progress, job.last_error, job.signal], cell: detail },
];
