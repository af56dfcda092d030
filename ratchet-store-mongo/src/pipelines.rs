//! Builds the filters, updates and pipelines for the server. The doc comment of each function names
//! the clauses that the function implements, and the index that the server uses.
//!
//! Strings from outside are wrapped in `$literal` wherever the server would otherwise evaluate a
//! leading `$` as an expression.

use std::collections::BTreeMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use ratchet_core::model::{
    AttemptOutcome, ClaimRequest, Effect, NextRun, NodeStatus, ReclaimEffect, RunAt,
};
use ratchet_core::time::{duration_micros, duration_millis, to_millis};
use ratchet_core::{ClaimToken, JobAction, JobId, JobState, Name, NodeId, Priority};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::row::{id, number};
use crate::{fair, fair_limits, freed};

/// Longest duration that is added to a time, in milliseconds. It is longer than any realistic
/// delay, and the sum still fits into 64 bits.
pub(crate) const LONGEST: i64 = i64::MAX / 2;

/// Maximum number of routes in a [`Range`]. The server merges up to this many `$in` values as
/// sorted streams. With more values, it sorts in memory.
const ROUTES: usize = 150;

/// Fields of a job that describe its running claim. They are removed when the claim ends.
const CLAIM: [&str; 5] = [
    "node",
    "claimed_at",
    "claim",
    "last_report",
    "cancel_requested",
];

/// Returns the pipeline that a claim runs before it searches for jobs. The pipeline reads the time,
/// the pauses, the last route, and whether the node may claim. The claim checks the pauses
/// and the node once more before it returns. The pipeline runs on the collection `meta`,
/// because this collection always has a document. [claim.paused] [claim.live] [queue.pause]
pub(crate) fn gate(node: NodeId, names: [&str; 3], now: Now) -> Vec<Document> {
    let [nodes, pauses, routes] = names;
    vec![
        doc! { "$limit": 1 },
        doc! { "$replaceWith": { "now": now.expression(), "limits": fair_limits::version() } },
        idle(node, nodes),
        last_route(routes),
        paused(pauses),
    ]
}

/// Returns the stage that adds the stored route with the largest number to the result, in the
/// fields `last` and `stamp`.
pub(crate) fn last_route(routes: &str) -> Document {
    doc! { "$unionWith": { "coll": routes, "pipeline": [
        { "$sort": { "_id": -1 } },
        { "$limit": 1 },
        { "$project": { "_id": 0, "last": "$_id", "stamp": 1 } },
    ] } }
}

/// Returns the stage that adds a document to the result if this node may not claim.
fn idle(node: NodeId, nodes: &str) -> Document {
    doc! { "$unionWith": { "coll": nodes, "pipeline": [
        { "$match": {
            "_id": id(node),
            "status": { "$ne": i32::from(NodeStatus::Active.code()) },
        } },
        { "$project": { "_id": 0, "idle": "$status" } },
    ] } }
}

/// Returns the stage that adds the pauses to the result.
fn paused(pauses: &str) -> Document {
    doc! { "$unionWith": { "coll": pauses, "pipeline": [
        { "$project": { "_id": 0, "paused": "$_id.name", "scope": "$_id.scope" } },
    ] } }
}

/// Some routes, and the maximum number of jobs of each priority that a claim reads from these
/// routes.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) routes: Vec<i32>,
    pub(crate) limit: i64,
    /// Whether the jobs are read in the order of their turns. The range then has one route.
    pub(crate) by_turn: bool,
    pub(crate) queues: Queues,
}

/// The queues of the jobs in a [`Range`].
#[derive(Clone, Debug)]
pub(crate) enum Queues {
    /// The routes belong to single queues.
    Own,
    /// The routes are shared. The range has the jobs of all queues but these.
    Except(Vec<String>),
    /// The routes are shared. The range has the jobs of these queues.
    Only(Vec<String>),
}

impl Queues {
    /// Splits a selection of queues by name, so that each part fits into a range.
    pub(crate) fn only(names: &[String]) -> impl Iterator<Item = Self> {
        names.chunks(ROUTES).map(|names| Self::Only(names.to_vec()))
    }

    /// Returns how many routes fit into a range. The server reads a stream for each route and named
    /// queue.
    fn routes(&self) -> usize {
        match self {
            Self::Own | Self::Except(_) => ROUTES,
            Self::Only(names) => (ROUTES / names.len().max(1)).max(1),
        }
    }
}

impl Range {
    /// Splits the routes into ranges.
    pub(crate) fn of(routes: &[i32], limit: i64, queues: Queues) -> impl Iterator<Item = Self> {
        let most = queues.routes();
        let range = move |routes: &[i32]| Self {
            routes: routes.to_vec(),
            limit,
            by_turn: false,
            queues: queues.clone(),
        };
        routes.chunks(most).map(range)
    }
}

/// Returns the pipeline that reads the first due jobs of each range and each priority, in claim
/// order. The indexes `claim`, `queue` and `turn` cover the pipeline, so the server reads no
/// documents.
///
/// The current time is a constant in the pipeline. With `$expr` and `$$NOW`, the server would also
/// read the document of each candidate to compare the time again. [claim.due] [claim.order]
/// [claim.match] [fair.turn]
pub(crate) fn candidates(jobs: &str, ranges: &[Range], now: i64) -> Vec<Document> {
    let stages = |range: &Range, priority: i32| {
        let mut wanted = doc! {
            "state": code(JobState::Pending),
            "route": { "$in": range.routes.clone() },
            "priority": priority,
            "run_at": { "$lte": now },
        };
        let mut read = doc! { "run_at": 1, "priority": 1, "route": 1 };
        let queue: Option<Bson> = match &range.queues {
            Queues::Own => None,
            Queues::Except(queues) => Some(doc! { "$nin": queues }.into()),
            Queues::Only(queues) => Some(doc! { "$in": queues }.into()),
        };
        if let Some(queue) = queue {
            wanted.insert("queue", queue);
            read.insert("queue", 1);
        }
        vec![
            doc! { "$match": wanted },
            doc! { "$sort": { "run_at": 1, "_id": 1 } },
            doc! { "$limit": range.limit },
            doc! { "$project": read },
        ]
    };
    let parts = ranges.iter().flat_map(|range| {
        let levels = (0..5).rev();
        levels.map(move |priority| match (range.by_turn, &*range.routes) {
            (true, [route]) => fair::turns(*route, priority, range.limit),
            _ => stages(range, priority),
        })
    });
    union(jobs, parts)
}

/// Returns the pipeline that counts the due jobs of these routes, up to `limit`. With a queue, the
/// routes are shared, and only its jobs count. The index `claim` or `queue` covers the pipeline.
/// The filter lists all priorities, so that the server skips jobs that are not due. [queue.depth]
pub(crate) fn count_due(
    routes: &[i32],
    queue: Option<&Name>,
    limit: u64,
    now: i64,
) -> Vec<Document> {
    let mut wanted = doc! {
        "state": code(JobState::Pending),
        "route": { "$in": routes },
        "priority": { "$in": [0, 1, 2, 3, 4] },
        "run_at": { "$lte": now },
    };
    if let Some(queue) = queue {
        wanted.insert("queue", queue.as_str());
    }
    vec![
        doc! { "$match": wanted },
        doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) },
        doc! { "$count": "count" },
    ]
}

/// Returns the pipeline that runs these pipelines one after the other.
pub(crate) fn union(jobs: &str, mut parts: impl Iterator<Item = Vec<Document>>) -> Vec<Document> {
    let mut pipeline = parts.next().unwrap_or_default();
    let others = parts.map(|part| doc! { "$unionWith": { "coll": jobs, "pipeline": part } });
    pipeline.extend(others);
    pipeline
}

/// What a claim has read of a candidate, and checks again when it takes the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) priority: Priority,
    /// Whether the job has a turn. Other candidates are due instead.
    pub(crate) has_turn: bool,
}

impl Seen {
    /// Returns the filter for jobs of which this still holds.
    fn still(self, now: i64) -> Document {
        let mut filter = doc! { "priority": i32::from(self.priority.level()) };
        match self.has_turn {
            true => filter.insert("turn", fair::unparked()),
            false => filter.insert("run_at", doc! { "$lte": now }),
        };
        filter
    }
}

/// Returns a filter for the jobs in `chosen` that can still be claimed. The filter checks all
/// conditions of a claim again, except the route, because the queue, the kind and the capability of
/// a job never change. It also requires that `claim_seq` is a number, because otherwise `$inc`
/// would fail the whole claim. Uses the index on `_id`. [claim.exclusive] [priority.job]
pub(crate) fn takeable(chosen: &[(JobId, Seen)], now: i64) -> Document {
    let mut seen: BTreeMap<Seen, Vec<JobId>> = BTreeMap::new();
    for (id, one) in chosen {
        seen.entry(*one).or_default().push(*id);
    }
    let all: Vec<JobId> = chosen.iter().map(|(id, _)| *id).collect();
    let mut takeable = doc! {
        "_id": { "$in": ids(&all) },
        "state": code(JobState::Pending),
        "claim_seq": { "$type": "number" },
    };
    if let [(one, _)] = &*seen.iter().collect::<Vec<_>>() {
        takeable.extend(one.still(now));
    } else {
        let of = |(one, some): (&Seen, &Vec<JobId>)| {
            let mut these = one.still(now);
            these.insert("_id", doc! { "$in": ids(some) });
            these
        };
        takeable.insert("$or", seen.iter().map(of).collect::<Vec<_>>());
    }
    takeable
}

/// Returns the update that claims a job for a node. The update stores `call` in the job, and the
/// claim later finds its jobs by this value. The job keeps its turn until the claim ends, so that
/// [`untake`] gives it back. `limited` tells whether the fair key of the job has a limit.
/// [claim.running]
pub(crate) fn take(node: NodeId, call: ObjectId, now: i64, limited: bool) -> Document {
    let mut set = doc! {
        "state": code(JobState::Running),
        "node": id(node),
        "claimed_at": now,
        "claim": call,
    };
    if limited {
        set.insert(fair_limits::LIMITED, true);
    }
    doc! {
        "$set": set,
        "$inc": { "claim_seq": 1_i64 },
        "$unset": { "last_report": "", "cancel_requested": "" },
    }
}

/// Returns a filter for the jobs that the call `call` has claimed and that still run.
pub(crate) fn taken(chosen: &[JobId], call: ObjectId) -> Document {
    doc! {
        "_id": { "$in": ids(chosen) },
        "claim": call,
        "state": code(JobState::Running),
    }
}

/// Returns the filter and the update of a write to the jobs that the call `call` has claimed. The
/// write changes nothing. The caller uses it to wait until a majority has all earlier writes.
pub(crate) fn still_taken(chosen: &[JobId], call: ObjectId) -> (Document, Document) {
    (taken(chosen, call), doc! { "$set": { "claim": call } })
}

/// Returns the pipeline that reads the result of a claim: first the claimed jobs, then whether the
/// node may still claim, and then the pauses. Because of this order, the pipeline sees every
/// pause and status change that was complete before the jobs were read. The last stage may be
/// `limits`, which reads whether the limits of fair keys have changed. It reads payloads only if
/// the request asks for them. [claim.whole] [claim.optimized] [claim.live] [queue.pause]
pub(crate) fn look_at_taken(
    request: &ClaimRequest,
    chosen: &[JobId],
    call: ObjectId,
    names: [&str; 2],
    limits: Option<Document>,
) -> Vec<Document> {
    let [nodes, pauses] = names;
    let mut hidden = vec!["history", "result", "last_error", "signal"];
    if !request.payloads {
        hidden.extend(["payload", "checkpoint"]);
    }
    let mut stages = vec![
        doc! { "$match": taken(chosen, call) },
        doc! { "$set": { "kept": { "$size": history() } } },
        doc! { "$unset": hidden },
        idle(request.node, nodes),
        paused(pauses),
    ];
    stages.extend(limits);
    stages
}

/// Returns the filter and the update that undo the claims of a call whose caller has not received
/// them. They do not undo claims with a cancel request. The number of an undone claim is not used
/// again, because another call may have read it. [queue.pause] [claim.live]
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

/// Returns a filter for the job of this token, if the claim of the token still runs. Uses the index
/// on `_id`.
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

/// The data that is written when a claim ends.
pub(crate) struct Ending<'a> {
    /// Number of the claim. It is never 0.
    pub(crate) seq: u64,
    pub(crate) effect: Effect<'a>,
    pub(crate) ran_for: Option<Bson>,
    /// Id of the call that ends the claim.
    pub(crate) call: ObjectId,
}

impl Ending<'_> {
    /// Returns the statement that applies the effect of a settlement to the jobs that match
    /// `filter`. The core has computed the effect. [settle.effect] [settle.keys] [settle.history]
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
        let ended = ended(set, effect.state, now);
        Statement::new(filter, ended).bytes(bytes)
    }
}

/// Returns an expression for how long a claim ran. For one claim, the expression is a constant. For
/// several claims, it looks up the duration by the job's id. Returns `None` if the duration of any
/// claim is unknown.
pub(crate) fn ran_for(claims: &[(JobId, Option<std::time::Duration>)]) -> Option<Bson> {
    let micros = |(_, ran_for): &(JobId, Option<std::time::Duration>)| ran_for.map(duration_micros);
    if let [claim] = claims {
        return micros(claim).map(Bson::from);
    }
    let times: Option<Vec<i64>> = claims.iter().map(micros).collect();
    let jobs: Vec<Bson> = claims.iter().map(|(job, _)| id(*job)).collect();
    times.map(|times| doc! { "$arrayElemAt": [times, { "$indexOfArray": [jobs, "$_id"] }] }.into())
}

/// Returns the stages that end a lost claim, with this effect on the job. [reclaim.requeue]
pub(crate) fn take_back(
    seq: u64,
    effect: ReclaimEffect,
    call: ObjectId,
    now: Now,
) -> Vec<Document> {
    let attempt = attempt(seq, AttemptOutcome::Lost, call, now, None, None);
    let set = doc! {
        "state": code(effect.state),
        "crash_count": i64::from(effect.crash_count),
        "history": with_attempt(attempt),
    };
    ended(set, effect.state, now)
}

/// Returns the stages that remove the node from a claim and do not end the claim. A later
/// settlement ends the claim as failed. [reclaim.exhausted]
pub(crate) fn give_up(effect: ReclaimEffect, call: ObjectId) -> Vec<Document> {
    vec![
        doc! { "$set": { "crash_count": i64::from(effect.crash_count), "claim": call } },
        doc! { "$unset": "node" },
    ]
}

/// Returns the stages that end a claim and put the job into `state`. If the state is terminal and
/// the job is in a batch, the stages also set the flag `counted`. The caller must count the job in
/// the same transaction. [batch.count]
fn ended(mut set: Document, state: JobState, now: Now) -> Vec<Document> {
    let mut unset: Vec<&str> = CLAIM.to_vec();
    unset.push("turn");
    if state.is_terminal() {
        set.insert("finished_at", now.expression());
        let in_batch = doc! { "$gt": ["$batch", Bson::Null] };
        set.insert("counted", doc! { "$cond": [in_batch, true, "$$REMOVE"] });
        unset.extend(UNFINISHED);
    }
    vec![doc! { "$set": set }, doc! { "$unset": unset }]
}

/// Fields that only unfinished jobs have: the held unique key, and the position in a lane.
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

/// Returns an expression for the attempts that are embedded in a job. The result is an empty list
/// if the field is not an array.
fn history() -> Document {
    doc! { "$cond": [{ "$isArray": "$history" }, "$history", []] }
}

/// Returns the projection of the fields that show which settlements of a job were applied. These
/// may be settlements of this call, or of an earlier call with the same token.
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

/// Returns the stages that move a waiting job to the state `to`, and remove its turn. If `to` is
/// terminal, they end the job. [act.respond] [fair.act] [fair.limit.wait]
pub(crate) fn moved(to: JobState, now: Now) -> Vec<Document> {
    let set = doc! { "state": code(to), fair_limits::LIMITED: freed::left_by(true) };
    if to.is_terminal() {
        ended(set, to, now)
    } else {
        vec![doc! { "$set": set }, doc! { "$unset": "turn" }]
    }
}

/// Returns the stages that apply an action which changes a value of the job. The job's state stays
/// the same. [reschedule.job] [priority.job] [fair.act]
pub(crate) fn given(action: JobAction, now: Now) -> Vec<Document> {
    let set = match action {
        JobAction::Reschedule(due) => moving("run_at", resolved(due, now)),
        JobAction::SetPriority(priority) => moving("priority", i32::from(priority.level()).into()),
        // An action that this version does not know changes nothing.
        _ => doc! { "state": "$state" },
    };
    vec![doc! { "$set": set }]
}

/// Returns the fields of a stage `$set` that gives a field on which turns depend this value. If the
/// job had another value, the stage removes its turn. [fair.act] [fair.limit.wait]
pub(crate) fn moving(field: &str, value: Bson) -> Document {
    let old = format!("${field}");
    let same = doc! { "$eq": [&old, value.clone()] };
    let moves = doc! { "$ne": [&old, value.clone()] };
    doc! {
        field: value,
        "turn": { "$cond": [same, "$turn", "$$REMOVE"] },
        fair_limits::LIMITED: freed::left_by(moves),
    }
}

/// Returns an expression for the time at which the job becomes due.
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

/// Returns the stages that reset a dead letter, so that the job can run again. [requeue.fresh]
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
        doc! { "$unset": ["finished_at", "last_error", "expires_at"] },
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

/// Returns a filter for the lock `name` that matches if this owner may acquire the lock. The owner
/// may acquire the lock if the lock is free, or if the owner already holds it. [lock.exclusive]
/// [lock.expire]
pub(crate) fn takeable_lock(name: &str, owner: &str, now: Now) -> Document {
    let mine = doc! { "$eq": ["$owner", literal(owner)] };
    let free = doc! { "$lte": ["$expires_at", now.expression()] };
    doc! { "_id": name, "$expr": { "$or": [mine, free] } }
}

/// Returns the update that acquires a lock. If this owner already holds the lock, the fence stays
/// the same. [`takeable_lock`] excludes locks of other owners. [lock.again] [lock.fence]
pub(crate) fn take_lock(owner: &str, ttl: i64, now: Now) -> Vec<Document> {
    let held = doc! { "$gt": ["$expires_at", now.expression()] };
    vec![doc! { "$set": {
        "fence": { "$cond": [held, "$fence", next_in_time("$fence", now)] },
        "owner": literal(owner),
        "expires_at": renewed_end(ttl, now),
    } }]
}

/// Returns an expression for the new expiry of a lock that is renewed or acquired, as
/// `ratchet_core::store::renewed_end` computes it. A lock that has expired gets one `ttl` from now,
/// even if another owner held it. [lock.renew] [lock.again]
pub(crate) fn renewed_end(ttl: i64, now: Now) -> Document {
    let after = |ttl: i64| doc! { "$add": [now.expression(), ttl] };
    let soonest = doc! { "$max": ["$expires_at", after(ttl)] };
    doc! { "$min": [soonest, after(ttl.saturating_mul(2))] }
}

/// Returns an expression for the next number in this field. The next number is the last number plus
/// one, or the current time if the time is greater. [lock.fence] [version.bump]
pub(crate) fn next_in_time(field: &str, now: Now) -> Document {
    let next = doc! { "$add": [{ "$ifNull": [field, 0_i64] }, 1_i64] };
    doc! { "$max": [next, now.expression()] }
}

/// Returns a filter for the lock `name` that matches if this owner holds the lock with this fence.
/// [lock.renew] [lock.release] [guard.write]
pub(crate) fn held_lock(name: &str, owner: &str, fence: u64, now: Now) -> Document {
    doc! {
        "_id": name,
        "owner": owner,
        "fence": number(fence),
        "$expr": { "$gt": ["$expires_at", now.expression()] },
    }
}

/// Returns a condition that matches every id of a job or of a batch. Documents with other ids
/// belong to other programs. The condition excludes them, so that they do not make calls fail.
/// [errors.poison]
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

/// Wraps a string, so that the server does not evaluate the string as an expression.
pub(crate) fn literal(text: &str) -> Document {
    doc! { "$literal": text }
}
