// Badges that show a state as a word with an icon and a colour.

import { h } from "./dom.js";
import { icon } from "./icons.js";

/** The states of a job, in the order in which pages list them. */
export const STATES = ["pending", "running", "blocked", "paused", "succeeded", "failed", "cancelled"];

const TONES = {
  pending: "wait", running: "busy", blocked: "held", paused: "warn", succeeded: "good", failed: "bad", cancelled: "gone",
  retried: "warn", snoozed: "wait", released: "gone", lost: "bad", undelivered: "gone", expired: "gone",
  lead: "busy", joining: "busy", active: "good", draining: "warn", left: "gone", dead: "bad", silent: "bad",
};

const SIGNS = {
  retried: "recurring", snoozed: "pending", released: "cancelled", lost: "failed", undelivered: "cancelled", expired: "cancelled",
  joining: "pending", active: "succeeded", draining: "paused", left: "cancelled", dead: "failed", silent: "failed",
};

const MEANINGS = {
  pending: "Waits to be claimed; due now or later",
  running: "Claimed by a node",
  blocked: "Waits for its lane, a parent or a signal",
  paused: "Paused by an operator",
  succeeded: "Succeeded",
  failed: "A dead letter: it failed and is not retried",
  cancelled: "Cancelled by request, because of a parent, or expired",
  retried: "Failed; another attempt follows",
  snoozed: "Postponed by the handler; does not count as an attempt",
  released: "Released by its node; does not count as an attempt",
  lost: "The job's node died or did not start the job in time",
  undelivered: "Claimed, but the response never reached the node; released",
  expired: "Claimed only after its expiry; did not run",
  joining: "Started; does not claim jobs yet",
  active: "Claims and runs jobs",
  draining: "Finishes running jobs; claims no more",
  left: "Shut down gracefully",
  dead: "Stopped sending heartbeats",
  silent: "The heartbeat is overdue: the node will be declared dead",
};

/** Returns the colour class of a state or an outcome. */
export function tone(state) {
  return TONES[state] ?? "gone";
}

/** Returns the meaning of a state, as a sentence. */
export function meaning(state) {
  return MEANINGS[state] ?? "";
}

/** Creates the badge of a state, an outcome or a status. */
export function badge(state, text = state) {
  return h("span", { class: `badge tone-${tone(state)}`, title: meaning(state) }, icon(SIGNS[state] ?? state), text);
}

/** Creates a badge with a text, without an icon. */
export function chip(text, tone = "wait", title = null) {
  return h("span", { class: `badge plain tone-${tone}`, title }, text);
}
