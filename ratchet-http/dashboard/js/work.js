// Actions on jobs: asked for, confirmed, done, told.

import { post, part } from "./api.js";
import { learnFrom } from "./access.js";
import { confirm } from "./dialog.js";
import { number } from "./format.js";
import { done, failed } from "./notices.js";

/** What can be done to jobs: how it is called, what it means, and whether it cannot be undone. */
export const ACTIONS = [
  { name: "retry", text: "Retry", past: "made pending again", meaning: "Makes a dead letter pending again, with its attempts at zero", from: ["failed"] },
  { name: "cancel", text: "Cancel", past: "cancelled", meaning: "Ends it: at once if it waits, by request to its handler if it runs", from: ["pending", "blocked", "paused", "running"], danger: true },
  { name: "pause", text: "Pause", past: "paused", meaning: "Sets it aside until it is resumed", from: ["pending"] },
  { name: "resume", text: "Resume", past: "resumed", meaning: "Lets it be claimed again", from: ["paused"] },
  { name: "delete", text: "Delete", past: "deleted", meaning: "Removes an ended job and its history for good", from: ["succeeded", "failed", "cancelled"], danger: true },
];

const PART = 1_000;

/** Does something, tells how it went, and gives whether it went well. */
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
    const yes = await confirm({ title: `${action.text} this job?`, text: [`${job.kind}, ${job.id}.`, `${action.meaning}.`], yes: `${action.text} it`, danger: true });
    if (!yes) return false;
  }
  return attempt(`Could not ${action.name} the job`, async () => told(action, await one(job.id, action)));
}

function told(action, answer) {
  if (answer.outcome === "cancel_requested") return "Asked the handler to stop";
  return answer.state ? `The job is ${answer.state} now` : `The job is ${action.past}`;
}

async function one(id, action) {
  for (;;) {
    try {
      return await post(`api/jobs/${part(id)}/${action.name}`);
    } catch (error) {
      if (error.status !== 429) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * (Number(error.retryAfter) || 1)));
    }
  }
}

/** Acts on the chosen jobs, one after the other: those that are not in the right state are counted. */
export async function actOnMany(jobs, action) {
  const fit = jobs.filter((job) => action.from.includes(job.state)).length;
  const yes = await confirm({
    title: `${action.text} ${number(jobs.length)} ${jobs.length === 1 ? "job" : "jobs"}?`,
    text: [`${action.meaning}.`, fit < jobs.length && `${number(jobs.length - fit)} of them ${jobs.length - fit === 1 ? "is" : "are"} not ${action.from.join(", ")} and will be left as they are.`].filter(Boolean),
    yes: `${action.text} ${jobs.length === 1 ? "it" : `all ${number(jobs.length)}`}`,
    danger: action.danger,
  });
  if (!yes) return false;
  let changed = 0;
  let refused = 0;
  return attempt(`Could not ${action.name} all of the jobs`, async () => {
    for (const job of jobs) {
      try {
        await one(job.id, action);
        changed += 1;
      } catch (error) {
        if (error.status !== 409 && error.status !== 404) throw error;
        refused += 1;
      }
    }
    return `${number(changed)} ${action.past}${refused > 0 ? `, ${number(refused)} left as they were` : ""}`;
  });
}

/** Acts on all jobs that match the filter, a part at a time, until none is left. */
export async function actOnAll(filter, words, action) {
  const everything = Object.keys(filter).length === 0;
  const yes = await confirm({
    title: `${action.text} everything that matches?`,
    text: [words, `${action.meaning}. This reaches every page, not only what you see.`],
    yes: `${action.text} all that match`,
    danger: true,
  });
  if (!yes) return false;
  const sum = { changed: 0, cancel_requested: 0, key_taken: 0, refused: 0 };
  return attempt(`Could not ${action.name} all of the jobs`, async () => {
    for (let complete = false; !complete;) {
      const answer = await post("api/jobs/bulk", { action: action.name, filter, limit: PART, ...(everything ? { all: true } : {}) });
      for (const name of Object.keys(sum)) sum[name] += answer[name] ?? 0;
      complete = answer.complete;
      if (answer.changed + (answer.cancel_requested ?? 0) === 0) break;
    }
    const parts = [`${number(sum.changed)} ${action.past}`];
    if (sum.cancel_requested > 0) parts.push(`${number(sum.cancel_requested)} asked to stop`);
    if (sum.key_taken > 0) parts.push(`${number(sum.key_taken)} left: their unique key is taken`);
    if (sum.refused > 0) parts.push(`${number(sum.refused)} left as they were`);
    return parts.join(", ");
  });
}
