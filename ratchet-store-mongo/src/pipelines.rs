//! Builds the filters, updates and pipelines sent to the server, each with the clauses it serves
//! and the index it uses.
//!
//! Strings from outside are wrapped in `$literal` wherever the server would otherwise evaluate a
//! leading `$` as an expression.

use std::collections::BTreeMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use ratchet_core::model::{AttemptOutcome, ClaimRequest, Effect, NextRun, NodeStatus, RunAt};
use ratchet_core::time::{duration_micros, duration_millis, to_millis};
use ratchet_core::{ClaimToken, JobAction, JobId, JobState, NodeId, Priority};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::row::{id, number};

/// The longest duration added to a time, in milliseconds. It is longer than any calendar needs, and
/// the sum still fits into 64 bits.
pub(crate) const LONGEST: i64 = i64::MAX / 2;

/// The maximum number of routes in one range. The server merges up to this many `$in` values as
/// sorted streams, and sorts in memory beyond that.
const ROUTES: usize = 150;

/// The fields of a running claim; they are unset when the claim ends.
const CLAIM: [&str; 5] = [
    "node",
    "claimed_at",
    "claim",
    "last_report",
    "cancel_requested",
];

/// Returns the pipeline that reads what a claim needs before it looks for candidates: the time, the
/// paused queues, the last route, and whether the node may claim. The pauses and the node are
/// checked again before the claim returns. The pipeline runs on `meta`, because it needs a
/// collection that always has a document. [claim.paused] [claim.live] [queue.pause]
pub(crate) fn gate(node: NodeId, names: [&str; 3], now: Now) -> Vec<Document> {
    let [nodes, queues, routes] = names;
    vec![
        doc! { "$limit": 1 },
        doc! { "$replaceWith": { "now": now.expression() } },
        idle(node, nodes),
        doc! { "$unionWith": { "coll": routes, "pipeline": [
            { "$sort": { "_id": -1 } },
            { "$limit": 1 },
            { "$project": { "_id": 0, "route": "$_id", "stamp": 1 } },
        ] } },
        paused(queues),
    ]
}

/// Returns the stage that adds a document if this node may not claim.
fn idle(node: NodeId, nodes: &str) -> Document {
    doc! { "$unionWith": { "coll": nodes, "pipeline": [
        { "$match": {
            "_id": id(node),
            "status": { "$ne": i32::from(NodeStatus::Active.code()) },
        } },
        { "$project": { "_id": 0, "idle": "$status" } },
    ] } }
}

/// Returns the stage that adds the paused queues.
fn paused(queues: &str) -> Document {
    doc! { "$unionWith": { "coll": queues, "pipeline": [
        { "$project": { "_id": 0, "paused": "$_id" } },
    ] } }
}

/// Routes, and how many jobs of each priority a claim reads from them.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) routes: Vec<i32>,
    pub(crate) limit: i64,
}

impl Range {
    /// Splits these routes into ranges of at most `ROUTES`.
    pub(crate) fn of(routes: &[i32], limit: i64) -> impl Iterator<Item = Self> {
        let range = move |routes: &[i32]| Self {
            routes: routes.to_vec(),
            limit,
        };
        routes.chunks(ROUTES).map(range)
    }
}

/// Returns the pipeline that reads the first due jobs of each priority in these ranges, in claim
/// order within each range and priority. Index `claim` covers the pipeline: no document is read.
///
/// The time is a constant. With `$expr` and `$$NOW` the index bound works too, but the server reads
/// each candidate's document to compare again. [claim.due] [claim.order] [claim.match]
pub(crate) fn candidates(jobs: &str, ranges: &[Range], now: i64) -> Vec<Document> {
    let stages = |range: &Range, priority: i32| {
        vec![
            doc! { "$match": {
                "state": code(JobState::Pending),
                "route": { "$in": range.routes.clone() },
                "priority": priority,
                "run_at": { "$lte": now },
            } },
            doc! { "$sort": { "run_at": 1, "_id": 1 } },
            doc! { "$limit": range.limit },
            doc! { "$project": { "run_at": 1, "priority": 1, "route": 1 } },
        ]
    };
    let mut pipeline = Vec::new();
    for range in ranges {
        for priority in (0..5).rev() {
            let stages = stages(range, priority);
            if pipeline.is_empty() {
                pipeline = stages;
            } else {
                pipeline.push(doc! { "$unionWith": { "coll": jobs, "pipeline": stages } });
            }
        }
    }
    pipeline
}

/// Returns the pipeline that counts the due jobs of these routes up to a limit. Index `claim`
/// covers the pipeline. It lists every priority, so that the server seeks to each one instead of
/// scanning jobs that are not due. [queue.depth]
pub(crate) fn count_due(routes: &[i32], limit: u64, now: i64) -> Vec<Document> {
    vec![
        doc! { "$match": {
            "state": code(JobState::Pending),
            "route": { "$in": routes },
            "priority": { "$in": [0, 1, 2, 3, 4] },
            "run_at": { "$lte": now },
        } },
        doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) },
        doc! { "$count": "count" },
    ]
}

/// Returns a filter for the chosen jobs that can still be claimed. It checks all conditions of a
/// candidate again, except the route, which never changes. `claim_seq` must be a number: otherwise
/// `$inc` would fail the whole claim. Uses the index on `_id`. [claim.exclusive] [priority.job]
pub(crate) fn takeable(chosen: &[(JobId, Priority)], now: i64) -> Document {
    let mut by_priority: BTreeMap<Priority, Vec<JobId>> = BTreeMap::new();
    for (id, priority) in chosen {
        by_priority.entry(*priority).or_default().push(*id);
    }
    let all: Vec<JobId> = chosen.iter().map(|(id, _)| *id).collect();
    let mut takeable = doc! {
        "_id": { "$in": ids(&all) },
        "state": code(JobState::Pending),
        "run_at": { "$lte": now },
        "claim_seq": { "$type": "number" },
    };
    let level = |priority: &Priority| i32::from(priority.level());
    if let [(priority, _)] = &*by_priority.iter().collect::<Vec<_>>() {
        takeable.insert("priority", level(priority));
    } else {
        let of = |(priority, some): (&Priority, &Vec<JobId>)| {
            doc! { "priority": level(priority), "_id": { "$in": ids(some) } }
        };
        takeable.insert("$or", by_priority.iter().map(of).collect::<Vec<_>>());
    }
    takeable
}

/// Returns the update that claims a job for a node. It marks the job with `call`, by which the jobs
/// of this call are found later. [claim.running]
pub(crate) fn take(node: NodeId, call: ObjectId, now: i64) -> Document {
    doc! {
        "$set": {
            "state": code(JobState::Running),
            "node": id(node),
            "claimed_at": now,
            "claim": call,
        },
        "$inc": { "claim_seq": 1_i64 },
        "$unset": { "last_report": "", "cancel_requested": "" },
    }
}

/// Returns a filter for the jobs that a call claimed and still holds.
fn taken(chosen: &[JobId], call: ObjectId) -> Document {
    doc! {
        "_id": { "$in": ids(chosen) },
        "claim": call,
        "state": code(JobState::Running),
    }
}

/// Returns the filter and the update of a write that changes nothing in the jobs that a call
/// claimed.
pub(crate) fn still_taken(chosen: &[JobId], call: ObjectId) -> (Document, Document) {
    (taken(chosen, call), doc! { "$set": { "claim": call } })
}

/// Returns the pipeline that reads the jobs that a call claimed, then whether its node may no
/// longer claim, then the paused queues. In this order, it sees every pause and status change that
/// returned before the jobs were read. It includes the payloads if the request asks for them.
/// [claim.whole] [claim.optimized] [claim.live] [queue.pause]
pub(crate) fn look_at_taken(
    request: &ClaimRequest,
    chosen: &[JobId],
    call: ObjectId,
    names: [&str; 2],
) -> Vec<Document> {
    let [nodes, queues] = names;
    let mut hidden = vec!["history", "result", "last_error", "signal"];
    if !request.payloads {
        hidden.extend(["payload", "checkpoint"]);
    }
    vec![
        doc! { "$match": taken(chosen, call) },
        doc! { "$set": { "kept": { "$size": history() } } },
        doc! { "$unset": hidden },
        idle(request.node, nodes),
        paused(queues),
    ]
}

/// Returns the filter and the update that undo claims which were never returned to a caller, except
/// those with a cancel request. Their claim numbers are not reused: other calls may have seen them.
/// [queue.pause] [claim.live]
pub(crate) fn untake(jobs: &[JobId], call: ObjectId) -> (Document, Document) {
    let mut filter = taken(jobs, call);
    filter.insert("cancel_requested", Bson::Null);
    let unset: Document = CLAIM
        .iter()
        .map(|field| ((*field).to_owned(), Bson::from("")))
        .collect();
    let update = doc! {
        "$set": { "state": code(JobState::Pending) },
        "$unset": unset,
    };
    (filter, update)
}

/// Returns a filter for the running claim with this token. Uses the index on `_id`.
pub(crate) fn held(token: ClaimToken) -> Document {
    doc! {
        "_id": id(token.job),
        "state": code(JobState::Running),
        "claim_seq": number(token.seq),
        "node": token.node.map_or(Bson::Null, id),
        "claimed_at": match to_millis(token.claimed_at) {
            0 => Bson::Null,
            claimed_at => claimed_at.into(),
        },
    }
}

/// How a claim ends.
pub(crate) struct Ending<'a> {
    /// The number of the claim. No claim has the number 0.
    pub(crate) seq: u64,
    pub(crate) effect: Effect<'a>,
    pub(crate) ran_for: Option<Bson>,
    /// The call that ends the claim.
    pub(crate) call: ObjectId,
}

impl Ending<'_> {
    /// Returns the statement that writes the effect, which the core computed, to the jobs that
    /// match `filter`. [settle.effect] [settle.keys] [settle.history]
    pub(crate) fn statement(self, filter: Document, now: Now) -> Statement {
        let effect = &self.effect;
        let mut set = doc! {
            "state": code(effect.state),
            "settled_seq": number(self.seq),
            "settled_node": "$node",
            "settled_claimed_at": "$claimed_at",
        };
        if effect.attempts_added > 0 {
            let added = i64::from(effect.attempts_added);
            set.insert("attempts", doc! { "$add": ["$attempts", added] });
        }
        if let NextRun::In(delay) = effect.next_run {
            let delay = duration_millis(delay).min(LONGEST);
            set.insert("run_at", doc! { "$add": [now.expression(), delay] });
        }
        let mut bytes = 0;
        if let Some(error) = effect.error {
            bytes += 2 * error.len();
            set.insert("last_error", literal(error));
        }
        if let Some(result) = effect.result {
            bytes += result.as_str().len();
            set.insert("result", literal(result.as_str()));
        }
        let attempt = attempt(
            self.seq,
            effect.record,
            self.call,
            now,
            effect.error,
            self.ran_for,
        );
        set.insert("history", with_attempt(attempt));
        Statement::new(filter, ended(set, effect.state, now)).bytes(bytes)
    }
}

/// Returns an expression for how long these claims ran: a constant for one claim, else a lookup by
/// the job's id. Returns `None` if that is not known of every claim.
pub(crate) fn ran_for(claims: &[(JobId, Option<std::time::Duration>)]) -> Option<Bson> {
    let micros = |(_, ran_for): &(JobId, Option<std::time::Duration>)| ran_for.map(duration_micros);
    if let [claim] = claims {
        return micros(claim).map(Bson::from);
    }
    let times: Option<Vec<i64>> = claims.iter().map(micros).collect();
    let jobs: Vec<Bson> = claims.iter().map(|(job, _)| id(*job)).collect();
    times.map(|times| doc! { "$arrayElemAt": [times, { "$indexOfArray": [jobs, "$_id"] }] }.into())
}

/// Returns the stages that reclaim a claim. [reclaim.requeue]
pub(crate) fn take_back(
    seq: u64,
    state: JobState,
    crash_count: u32,
    call: ObjectId,
    now: Now,
) -> Vec<Document> {
    let attempt = attempt(seq, AttemptOutcome::Lost, call, now, None, None);
    let set = doc! {
        "state": code(state),
        "crash_count": i64::from(crash_count),
        "history": with_attempt(attempt),
    };
    ended(set, state, now)
}

/// Returns the stages that remove the node from a claim but do not end the claim; a later
/// settlement ends it as failed. [reclaim.exhausted]
pub(crate) fn give_up(crash_count: u32, call: ObjectId) -> Vec<Document> {
    vec![
        doc! { "$set": { "crash_count": i64::from(crash_count), "claim": call } },
        doc! { "$unset": "node" },
    ]
}

/// Returns the stages that end a claim and put the job into this state. If the job is in a batch,
/// the same transaction counts it, so the stages set the flag `counted`. [batch.count]
fn ended(mut set: Document, state: JobState, now: Now) -> Vec<Document> {
    let mut unset: Vec<&str> = CLAIM.to_vec();
    if state.is_terminal() {
        set.insert("finished_at", now.expression());
        let in_batch = doc! { "$gt": ["$batch", Bson::Null] };
        set.insert("counted", doc! { "$cond": [in_batch, true, "$$REMOVE"] });
        unset.extend(UNFINISHED);
    }
    vec![doc! { "$set": set }, doc! { "$unset": unset }]
}

/// The fields that only unfinished jobs have: their unique key and their place in a lane.
const UNFINISHED: [&str; 3] = ["live_key", "lane_key", "lane_seq"];

fn attempt(
    seq: u64,
    outcome: AttemptOutcome,
    call: ObjectId,
    now: Now,
    error: Option<&str>,
    ran_for: Option<Bson>,
) -> Document {
    let mut attempt = doc! {
        "seq": number(seq),
        "node": "$node",
        "claimed_at": "$claimed_at",
        "ended_at": now.expression(),
        "outcome": i32::from(outcome.code()),
        "by": call,
    };
    if let Some(error) = error {
        attempt.insert("error", literal(error));
    }
    if let Some(ran_for) = ran_for {
        attempt.insert("ran_for", ran_for);
    }
    attempt
}

fn with_attempt(attempt: Document) -> Document {
    doc! { "$concatArrays": [history(), [attempt]] }
}

/// Returns an expression for the attempts embedded in a job; empty if the field is not an array.
fn history() -> Document {
    doc! { "$cond": [{ "$isArray": "$history" }, "$history", []] }
}

/// Returns the projection of the fields that show which settlements were applied, by this call or
/// by an earlier one with the same token.
pub(crate) fn settled_projection(call: ObjectId) -> Document {
    let mine = doc! { "$filter": {
        "input": history(),
        "cond": { "$eq": ["$$this.by", call] },
    } };
    doc! {
        "state": 1, "claim_seq": 1, "node": 1, "claimed_at": 1,
        "settled_seq": 1, "settled_node": 1, "settled_claimed_at": 1,
        "lane": 1, "cancel_requested": 1,
        "claim": 1, "children": 1, "batch": 1, "counted": 1,
        "mine": { "$map": { "input": mine, "in": "$$this.seq" } },
    }
}

/// Returns the stages that move a waiting job to another state, or end it. [act.respond]
pub(crate) fn moved(to: JobState, now: Now) -> Vec<Document> {
    let set = doc! { "state": code(to) };
    if to.is_terminal() {
        ended(set, to, now)
    } else {
        vec![doc! { "$set": set }]
    }
}

/// Returns the stages that apply an action which changes a value of the job, not its state.
/// [reschedule.job] [priority.job]
pub(crate) fn given(action: JobAction, now: Now) -> Vec<Document> {
    let set = match action {
        JobAction::Reschedule(due) => doc! { "run_at": resolved(due, now) },
        JobAction::SetPriority(priority) => doc! { "priority": i32::from(priority.level()) },
        // An action that this version does not know changes nothing.
        _ => doc! { "state": "$state" },
    };
    vec![doc! { "$set": set }]
}

/// Returns an expression for the time at which a job is due.
fn resolved(due: RunAt, now: Now) -> Bson {
    match due {
        RunAt::Now => now.expression(),
        RunAt::In(delay) => {
            let delay = duration_millis(delay).min(LONGEST);
            doc! { "$add": [now.expression(), delay] }.into()
        }
        RunAt::At(at) => to_millis(at).into(),
    }
}

/// Returns the stages that reset a dead letter so that it can run again. [requeue.fresh]
/// [requeue.key]
pub(crate) fn requeued(to: JobState, lane: Option<(&str, i64)>, now: Now) -> Vec<Document> {
    let mut set = doc! {
        "state": code(to),
        "run_at": now.expression(),
        "attempts": 0_i64,
        "crash_count": 0_i64,
        // For a job without a key the field stays missing.
        "live_key": "$unique_key",
    };
    if let Some((key, seq)) = lane {
        set.insert("lane_key", literal(key));
        set.insert("lane_seq", seq);
    }
    vec![
        doc! { "$set": set },
        doc! { "$unset": ["finished_at", "last_error"] },
    ]
}

/// Returns the pipeline that finds the first unfinished job of each of these lanes, if any. Uses
/// index `lane`. [lane.promote]
pub(crate) fn heads(jobs: &str, lanes: &[String]) -> Vec<Document> {
    vec![
        doc! { "$match": { "_id": { "$in": lanes } } },
        doc! { "$lookup": {
            "from": jobs,
            "let": { "lane": "$_id" },
            "pipeline": [
                { "$match": {
                    "_id": any_job_id(),
                    "lane_key": { "$exists": true },
                    "$expr": { "$eq": ["$lane_key", "$$lane"] },
                } },
                { "$sort": { "lane_key": 1, "lane_seq": 1 } },
                { "$limit": 1 },
                { "$project": { "state": 1 } },
            ],
            "as": "head",
        } },
        doc! { "$project": { "head": { "$arrayElemAt": ["$head", 0] } } },
    ]
}

/// Returns a filter for a lock that this owner may acquire, because the lock is free or this owner
/// has it. [lock.exclusive] [lock.expire]
pub(crate) fn takeable_lock(name: &str, owner: &str, now: Now) -> Document {
    let mine = doc! { "$eq": ["$owner", literal(owner)] };
    let free = doc! { "$lte": ["$expires_at", now.expression()] };
    doc! { "_id": name, "$expr": { "$or": [mine, free] } }
}

/// Returns the update that acquires a lock. If the lock is held, its holder is this owner (see
/// [`takeable_lock`]), and the fence stays the same. [lock.again] [lock.fence]
pub(crate) fn take_lock(owner: &str, ttl: i64, now: Now) -> Vec<Document> {
    let held = doc! { "$gt": ["$expires_at", now.expression()] };
    vec![doc! { "$set": {
        "fence": { "$cond": [held, "$fence", next_in_time("$fence", now)] },
        "owner": literal(owner),
        "expires_at": renewed_end(ttl, now),
    } }]
}

/// Returns an expression for the expiry of a lock after its owner renews it, as
/// `ratchet_core::store::renewed_end` computes it. A lock that has expired gets one `ttl` from now,
/// even if another owner held it. [lock.renew] [lock.again]
pub(crate) fn renewed_end(ttl: i64, now: Now) -> Document {
    let after = |ttl: i64| doc! { "$add": [now.expression(), ttl] };
    let soonest = doc! { "$max": ["$expires_at", after(ttl)] };
    doc! { "$min": [soonest, after(ttl.saturating_mul(2))] }
}

/// Returns an expression for the next number in this field: one more than the last number, but at
/// least the time. [lock.fence] [version.bump]
pub(crate) fn next_in_time(field: &str, now: Now) -> Document {
    let next = doc! { "$add": [{ "$ifNull": [field, 0_i64] }, 1_i64] };
    doc! { "$max": [next, now.expression()] }
}

/// Returns a filter for a lock that this owner holds with this fence. [lock.renew] [lock.release]
/// [guard.write]
pub(crate) fn held_lock(name: &str, owner: &str, fence: u64, now: Now) -> Document {
    doc! {
        "_id": name,
        "owner": owner,
        "fence": number(fence),
        "$expr": { "$gt": ["$expires_at", now.expression()] },
    }
}

/// Returns a condition that matches every id of a job or of a batch. Documents with other ids
/// belong to other programs; because of this condition, they make no call fail. [errors.poison]
pub(crate) fn any_job_id() -> Document {
    let [first, last] = [0, u8::MAX].map(|byte| id(JobId::from_bytes([byte; 16])));
    doc! { "$gte": first, "$lte": last }
}

pub(crate) fn ids(jobs: &[JobId]) -> Vec<Bson> {
    jobs.iter().map(|job| id(*job)).collect()
}

pub(crate) fn code(state: JobState) -> i32 {
    state.code().into()
}

/// Keeps a string from being evaluated as an expression.
pub(crate) fn literal(text: &str) -> Document {
    doc! { "$literal": text }
}
