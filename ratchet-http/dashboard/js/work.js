// Actions on jobs: asks for confirmation, sends the requests, and shows the results.

import { forgetRead, get, post, part } from "./api.js";
import { learnFrom } from "./access.js";
import { confirm } from "./dialog.js";
import { quoted } from "./dom.js";
import { number } from "./format.js";
import { done, failed, note } from "./notices.js";

/** The actions on jobs: name, texts, the states that allow the action (`from`), and whether it is destructive (`danger`). */
export const ACTIONS = [
  { name: "retry", text: "Retry", past: "made pending again", meaning: "Makes a dead letter pending again, with its attempts at zero", from: ["failed"] },
  { name: "cancel", text: "Cancel", past: "cancelled", meaning: "Cancels a job: at once if it waits, by a request to its handler if it is running", from: ["pending", "blocked", "paused", "running"], danger: true },
  { name: "pause", text: "Pause", past: "paused", meaning: "Pauses a job until it is resumed", from: ["pending"] },
  { name: "resume", text: "Resume", past: "resumed", meaning: "Makes a paused job pending again", from: ["paused"] },
  { name: "delete", text: "Delete", past: "deleted", meaning: "Removes an ended job and its history for good", from: ["succeeded", "failed", "cancelled"], danger: true },
];

const PART = 1_000;
const COUNT = "api/jobs/count";

/** Runs an action, shows its result, and returns whether it succeeded. */
export async function attempt(what, run) {
  try {
    const said = await run();
    if (said) done(said);
    return true;
  } catch (error) {
    learnFrom(error);
    failed(what, error);
    return false;
  }
}

/** Acts on one job. */
export async function actOn(job, action) {
  if (action.danger) {
    const yes = await confirm({ title: `${action.text} this job?`, text: [`${quoted(job.kind)}, ${job.id}.`, `${action.meaning}.`], yes: `${action.text} it`, danger: true });
    if (!yes) return false;
  }
  return attempt(`Could not ${action.name} the job`, async () => told(action, await patiently(`api/jobs/${part(job.id)}/${action.name}`)));
}

function told(action, answer) {
  if (answer.outcome === "cancel_requested") return "Asked the handler to stop";
  return answer.state ? `The job is ${answer.state} now` : `The job is ${action.past}`;
}

/** Posts a request. If the rate limit of writes is reached, waits and retries. */
async function patiently(path, body) {
  for (;;) {
    try {
      return await post(path, body);
    } catch (error) {
      if (error.code !== "too_many_requests") throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (Number(error.retryAfter) || 1)));
    }
  }
}

/** Acts on many jobs in several requests, and shows how many were changed, even after a failure. */
async function inParts(action, run) {
  const sum = { changed: 0, cancel_requested: 0, key_taken: 0, refused: 0 };
  const act = async (body) => {
    const answer = await patiently("api/jobs/bulk", { action: action.name, ...body });
    for (const name of Object.keys(sum)) sum[name] += answer[name] ?? 0;
    return answer;
  };
  try {
    await run(act);
    done(summed(action, sum));
    return true;
  } catch (error) {
    learnFrom(error);
    const some = Object.values(sum).some((count) => count > 0);
    failed(`Could not ${action.name} all of the jobs${some ? `; before that: ${summed(action, sum)}` : ""}`, error);
    return false;
  }
}

function summed(action, sum) {
  const parts = [`${number(sum.changed)} ${action.past}`];
  if (sum.cancel_requested > 0) parts.push(`${number(sum.cancel_requested)} asked to stop`);
  if (sum.key_taken > 0) parts.push(`${number(sum.key_taken)} not changed: another job has their unique key`);
  if (sum.refused > 0) parts.push(`${number(sum.refused)} not changed: their state does not allow it`);
  return parts.join(", ");
}

/**
 * Acts on the chosen jobs of one page with one request. Jobs whose state does not allow the action are
 * counted and not changed. Returns null if the user did not confirm, otherwise whether the action succeeded.
 */
export async function actOnMany(jobs, action) {
  const fit = jobs.filter((job) => action.from.includes(job.state)).length;
  const yes = await confirm({
    title: `${action.text} ${number(jobs.length)} ${jobs.length === 1 ? "job" : "jobs"}?`,
    text: [`${action.meaning}.`, fit < jobs.length && `${number(jobs.length - fit)} of them ${jobs.length - fit === 1 ? "is" : "are"} not ${action.from.join(" or ")} and will not be changed.`].filter(Boolean),
    yes: `${action.text} ${jobs.length === 1 ? "it" : `all ${number(jobs.length)}`}`,
    danger: action.danger,
  });
  if (!yes) return null;
  return inParts(action, (act) => act({ ids: jobs.map((job) => job.id) }));
}

/** Returns how many jobs an action would change, in words. The server counts up to a limit. */
async function howMany(filter, action) {
  try {
    const { jobs, exact } = await get(COUNT, { ...filter, action: action.name });
    const noun = jobs === 1 ? "job" : "jobs";
    return { jobs: `${exact ? "" : "at least "}${number(jobs)} ${noun}`, none: exact && jobs === 0 };
  } catch (error) {
    return { jobs: "all that match", unknown: `The matching jobs could not be counted: ${error.title ?? error.message}.` };
  }
}

/**
 * Acts on all jobs that match the filter, in several requests. Stops after the job that was newest at the
 * start, because new jobs keep arriving. Returns null if the user did not confirm, otherwise whether the
 * action succeeded.
 */
export async function actOnAll(filter, words, action) {
  const everything = Object.keys(filter).length === 0;
  const { states, ...others } = filter;
  const wanted = { ...others, state: states?.join(",") };
  const found = await howMany(wanted, action);
  if (found.none) {
    note("Nothing to do", `${words} None of them is ${action.from.join(" or ")}.`);
    return null;
  }
  const yes = await confirm({
    title: `${action.text} ${found.jobs}?`,
    text: [words, found.unknown, `${action.meaning}. This affects the jobs on all pages, not only those shown.`].filter(Boolean),
    yes: `${action.text} ${found.jobs}`,
    danger: true,
  });
  // Only the dialog needs the count. After it is closed, a failed count no longer affects the lamp.
  forgetRead(COUNT);
  if (!yes) return null;
  return inParts(action, async (act) => {
    const { jobs: [newest] } = await get("api/jobs", { ...wanted, order: "newest", limit: 1 });
    // Ids begin with their time, so they can be compared. Running jobs still match until their nodes have
    // handled a cancellation, so each request continues after the last job of the previous one.
    for (let complete = !newest, after; !complete && !(after >= newest.id);) {
      const answer = await act({ filter, limit: PART, ...(everything ? { all: true } : {}), ...(after ? { after } : {}) });
      after = answer.next ?? after;
      complete = answer.complete;
    }
  });
}
