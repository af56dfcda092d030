// States as words with a sign and a colour.

import { h } from "./dom.js";
import { icon } from "./icons.js";

/** The states of a job, in the order they are listed. */
export const STATES = ["pending", "running", "blocked", "paused", "succeeded", "failed", "cancelled"];

const TONES = {
  pending: "wait", running: "busy", blocked: "held", paused: "warn", succeeded: "good", failed: "bad", cancelled: "gone",
  retried: "warn", snoozed: "wait", released: "gone", lost: "bad", undelivered: "gone",
  lead: "busy", joining: "busy", active: "good", draining: "warn", left: "gone", dead: "bad", silent: "bad",
};

const SIGNS = {
  retried: "recurring", snoozed: "pending", released: "cancelled", lost: "failed", undelivered: "cancelled",
  joining: "pending", active: "succeeded", draining: "paused", left: "cancelled", dead: "failed", silent: "failed",
};

const MEANINGS = {
  pending: "Waiting to be claimed: due, or due later",
  running: "Claimed by a node",
  blocked: "Waiting for its lane, a parent or a signal",
  paused: "Set aside by an operator",
  succeeded: "Ended well",
  failed: "Ended badly, all attempts used: a dead letter",
  cancelled: "Ended by request",
  retried: "Failed, to be tried again",
  snoozed: "Put off by the handler, at no cost",
  released: "Handed back before it began",
  lost: "Its node died or took too long to begin",
  undelivered: "Claimed, but the answer never reached the node; handed back",
  joining: "Started, does not claim yet",
  active: "Claims and runs jobs",
  draining: "Finishes what runs, claims nothing",
  left: "Stopped cleanly",
  dead: "Its heartbeat stayed away",
  silent: "Its heartbeat is overdue: it will be declared dead",
};

/** The tone of a state or an outcome. */
export function tone(state) {
  return TONES[state] ?? "gone";
}

/** What a state means, in a sentence. */
export function meaning(state) {
  return MEANINGS[state] ?? "";
}

/** A state, an outcome or a status. */
export function badge(state, text = state) {
  return h("span", { class: `badge tone-${tone(state)}`, title: meaning(state) }, icon(SIGNS[state] ?? state), text);
}

/** A word in a box. */
export function chip(text, tone = "wait", title = null) {
  return h("span", { class: `badge plain tone-${tone}`, title }, text);
}
