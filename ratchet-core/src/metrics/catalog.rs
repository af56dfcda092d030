//! The table of all metrics.

use ::metrics::Unit;

/// The type of a metric.
///
/// ```
/// use ratchet::metrics::{CATALOG, Kind};
///
/// let counters = CATALOG.iter().filter(|metric| metric.kind == Kind::Counter);
/// for counter in counters {
///     println!("rate({}[5m])", counter.name);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Divides what it is given into buckets.
    Histogram,
}

/// A metric.
///
/// ```
/// use ratchet::metrics::CATALOG;
///
/// for metric in CATALOG {
///     let labels: Vec<&str> = metric.labels.iter().map(|label| label.name).collect();
///     println!("{} {labels:?}: {}", metric.name, metric.description);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, as Prometheus wants it.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit.
    pub unit: Option<Unit>,
    /// Its labels, each of which it always has.
    pub labels: &'static [Label],
    /// Its description.
    pub description: &'static str,
}

/// A label of a metric.
///
/// See [`Values`] for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Which values it may have.
    pub values: Values,
}

/// Which values a label may have: what bounds the number of time series.
///
/// ```
/// use ratchet::metrics::{JOBS_ENQUEUED, Values};
///
/// for label in JOBS_ENQUEUED.labels {
///     match label.values {
///         Values::OneOf(values) => println!("{} is one of {values:?}", label.name),
///         values => println!("{}: {values:?}", label.name),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Values {
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A kind that is registered at the node; of enqueued jobs, one of the first [`MAX_KINDS`]
    /// kinds that the process enqueues. Every other kind is [`OTHER`].
    Kinds,
    /// A pool of the node.
    Pools,
    /// A role for which this process is a candidate.
    Roles,
    /// A queue that [`NodeBuilder::measured_queues`](crate::NodeBuilder::measured_queues) names, of
    /// which there are at most 50.
    Queues,
    /// A call of the store, as the code of the engine and its clients names it: about sixty.
    Operations,
}

/// The kind that stands for all that have no value of their own.
pub const OTHER: &str = "other";
/// How many kinds of enqueued jobs a process tells apart.
pub const MAX_KINDS: usize = 200;

/// Kinds of failures of a store, as labels have them.
const ERRORS: &[&str] = &[
    "unavailable",
    "timeout",
    "contention",
    "full",
    "read_only",
    "invalid",
    "misconfigured",
    "schema_mismatch",
    "corrupt",
    "other",
];

const KIND: Label = label("kind", Values::Kinds);
const POOL: Label = label("pool", Values::Pools);
const QUEUE: Label = label("queue", Values::Queues);
const ROLE: Label = label("role", Values::Roles);

const fn label(name: &'static str, values: Values) -> Label {
    Label { name, values }
}

const fn one_of(name: &'static str, values: &'static [&'static str]) -> Label {
    label(name, Values::OneOf(values))
}

const fn unit(kind: Kind, name: &str) -> Option<Unit> {
    if ends_in(name, "_seconds") {
        Some(Unit::Seconds)
    } else if matches!(kind, Kind::Histogram) || ends_in(name, "_total") {
        Some(Unit::Count)
    } else {
        None
    }
}

const fn ends_in(name: &str, end: &str) -> bool {
    let (name, end) = (name.as_bytes(), end.as_bytes());
    let mut at = 0;
    while at < end.len() {
        if name.len() < end.len() || name[name.len() - end.len() + at] != end[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Declares the metrics as constants, and all of them as [`CATALOG`].
macro_rules! catalog {
    ($($id:ident: $kind:ident $name:literal [$($label:expr),*] $description:literal;)*) => {
        $(
            #[doc = $description]
            pub const $id: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                unit: unit(Kind::$kind, $name),
                labels: &[$($label),*],
                description: $description,
            };
        )*
        /// Every metric there is.
        pub const CATALOG: &[Metric] = &[$($id),*];
    };
}

catalog! {
    // Enqueueing and acting.
    JOBS_ENQUEUED: Counter "ratchet_jobs_enqueued_total"
        [KIND, one_of("outcome", &["created", "duplicate"])]
        "Jobs that clients and nodes enqueued. Not those inside a transaction of the application, nor those of recurring definitions.";
    JOB_ACTIONS: Counter "ratchet_job_actions_total"
        [
            one_of("action", &["cancel", "requeue", "pause", "resume", "reschedule", "set_priority", "delete"]),
            one_of("outcome", &["became", "cancel_requested", "changed", "deleted", "key_taken", "refused", "not_found"])
        ]
        "Jobs to which a client of this process did something, such as cancelling them.";

    // Claiming.
    CLAIM_CALLS: Counter "ratchet_claim_calls_total"
        [POOL, one_of("result", &["full", "partial", "empty", "failed"])]
        "Polls: calls that asked for jobs, by whether they brought as many as were asked for.";
    JOBS_CLAIMED: Counter "ratchet_jobs_claimed_total" [POOL]
        "Jobs that were claimed.";
    POLL_DELAY: Histogram "ratchet_poll_delay_seconds" [POOL]
        "How long a poller that found too little, or no database, intends to wait before the next poll. While a leader looks for due jobs on its behalf, it waits longer.";
    CLAIMS_WAITING: Gauge "ratchet_claims_waiting" [POOL]
        "Claims that were prefetched and wait for a slot, as of the last poll or look at them.";
    PREFETCH_EXPIRED: Counter "ratchet_prefetch_expired_total" [POOL]
        "Prefetched claims that were handed back because no slot was free for too long.";
    CLAIMS_HANDED_BACK: Counter "ratchet_claims_handed_back_total" [POOL]
        "Claims that were handed back before their bodies began: at a drain, on standby, or prefetched too early.";
    CLAIMS_LOST: Counter "ratchet_claims_lost_total"
        [POOL, one_of("during", &["wait", "run"])]
        "Claims that were taken away from this node before they ended, while they waited or while their bodies ran.";
    JOBS_PUT_OFF: Counter "ratchet_jobs_put_off_total"
        [POOL, one_of("reason", &["suspect", "newer_payload", "rate_limit", "rate_limit_key", "limiter_failed"])]
        "Claimed jobs that were given back because they may not begin yet.";

    // Running.
    JOBS_BEGUN: Counter "ratchet_jobs_begun_total" [KIND, POOL]
        "Bodies that began.";
    JOB_WAIT: Histogram "ratchet_job_wait_seconds" [KIND, POOL]
        "From when a job was due until its body began: by the database's clock until it was claimed, then by the node's monotonic one.";
    BODY: Histogram "ratchet_body_seconds" [KIND, POOL]
        "How long bodies ran, however they ended.";
    JOBS_RUNNING: Gauge "ratchet_jobs_running" [POOL]
        "Bodies that run.";
    SLOTS: Gauge "ratchet_slots" [POOL]
        "How many bodies can run at once.";
    JOB_PANICS: Counter "ratchet_job_panics_total" [KIND, POOL]
        "Bodies that panicked.";
    JOB_TIMEOUTS: Counter "ratchet_job_timeouts_total" [KIND, POOL]
        "Bodies that were dropped at their timeout.";
    JOB_STALLS: Counter "ratchet_job_stalls_total" [KIND, POOL]
        "Bodies that were dropped because they gave no sign of life; their claims count as lost, too.";
    JOBS_UNREADABLE: Counter "ratchet_jobs_unreadable_total" [KIND, POOL]
        "Jobs without a body, since their payload could not be decoded: dead letters.";
    SUSPECTS_BEGUN: Counter "ratchet_suspects_begun_total" [POOL]
        "Jobs that were announced to begin since they had been lost with a node before.";
    RATE_LIMIT_WAIT: Histogram "ratchet_rate_limit_wait_seconds" [KIND]
        "What a rate limiter said a job has to wait.";
    PERMIT_WAIT: Histogram "ratchet_permit_wait_seconds" [POOL]
        "As ratchet_job_wait_seconds, for jobs that needed a permit.";
    PERMIT_RESTS: Counter "ratchet_permit_rests_total" [POOL]
        "Rests of pollers so that other nodes get at permits that this one freed.";

    // Ending.
    JOBS_SETTLED: Counter "ratchet_jobs_settled_total"
        [KIND, POOL, one_of("outcome", &["succeeded", "retried", "failed", "snoozed", "released", "cancelled"])]
        "Claims that this node ended; `failed` are dead letters, `retried` failed attempts that are followed by another.";
    SETTLE_BATCH: Histogram "ratchet_settle_batch_jobs" []
        "How many claims were ended by one call.";
    SETTLE: Histogram "ratchet_settle_seconds" []
        "How long these calls took.";
    SETTLE_RETRIES: Counter "ratchet_settle_retries_total" [one_of("error", ERRORS)]
        "Calls that failed to end claims; each is tried again until the store has taken it.";
    SETTLEMENTS_STALE: Counter "ratchet_settlements_stale_total" [POOL]
        "Ends that came too late: the job had been taken away, and what its body did runs a second time.";
    SETTLEMENTS_REFUSED: Counter "ratchet_settlements_refused_total" []
        "Ends that the store refused for good though it took others.";
    REPORTS: Counter "ratchet_reports_total"
        [one_of("outcome", &["applied", "stale", "failed"])]
        "Progress, checkpoints and signs of life of bodies; `stale`: the claim was no longer this node's; `failed`: the call did.";

    // The node.
    NODES: Gauge "ratchet_nodes"
        [one_of("status", &["joining", "active", "draining", "left", "dead"])]
        "Nodes of this process, by status; those that run no more are not counted.";
    HEARTBEATS: Counter "ratchet_heartbeats_total" [one_of("outcome", &["ok", "failed"])]
        "Signs of life that were sent.";
    HEARTBEAT: Histogram "ratchet_heartbeat_seconds" []
        "How long a heartbeat took, also if it failed.";
    CLOCK_SKEW: Gauge "ratchet_clock_skew_seconds" []
        "By how much the node's clock is ahead of the database's; negative: behind.";
    TAKEN_FOR_DEAD: Counter "ratchet_taken_for_dead_total"
        [one_of("result", &["renewed", "displaced"])]
        "Times this node found that it was taken for dead, and went on under a new id or was displaced by another of its label.";
    DRAIN: Histogram "ratchet_drain_seconds"
        [one_of("result", &["clean", "interrupted", "abandoned"])]
        "How long drains took until no claim was held; `interrupted`: bodies were told to stop; `abandoned`: claims were left for others to take back.";
    LOOP_PANICS: Counter "ratchet_loop_panics_total"
        [one_of("loop", &[
            "heartbeat", "reclaimer", "settler", "reporter", "prefetch", "maintenance", "backlog", "due_watch", "recurring",
            "leader", "watchdog", "daemon", "gate", "slot", "poller"
        ])]
        "Loops of the engine that panicked and were begun again: a defect.";
    HOOK_PANICS: Counter "ratchet_hook_panics_total" []
        "Hooks of the application that panicked.";

    // Looking after the cluster.
    CLOCK_STEPS: Counter "ratchet_clock_steps_total" [one_of("direction", &["forward", "back"])]
        "Steps of the database's clock that this node saw between two of its heartbeats.";
    DATABASE_REWINDS: Counter "ratchet_database_rewinds_total" []
        "Times this node found that the database had gone back to an earlier state: it failed over to a copy that lacked writes, or was restored.";
    NODES_DIED: Counter "ratchet_nodes_died_total" []
        "Silent nodes that this one ended.";
    CLAIMS_RECLAIMED: Counter "ratchet_claims_reclaimed_total"
        [one_of("reason", &["owner_lost", "owner_left", "not_started", "stalled", "overdue"])]
        "Claims that this node took back, so that their jobs run again.";
    CLAIMS_UNDELIVERED: Counter "ratchet_claims_undelivered_total" []
        "Claims that this node handed back because the store's answer to them never arrived.";
    CLAIMS_UNHELD: Gauge "ratchet_claims_unheld" []
        "Claims that the store listed under the node at its last two heartbeats and the node does not hold: their jobs wait.";
    JOBS_EXHAUSTED: Counter "ratchet_jobs_exhausted_total" []
        "Jobs that were lost with their node too often and failed for it: dead letters.";
    SIGNALS_EXPIRED: Counter "ratchet_signals_expired_total" []
        "Jobs that failed since their signal did not come in time: dead letters.";
    RECLAIM: Histogram "ratchet_reclaim_seconds" []
        "How long a pass for dead nodes, lost claims and late signals took.";
    MAINTENANCE_ROWS: Counter "ratchet_maintenance_rows_total"
        [one_of("what", &["jobs_deleted", "jobs_archived", "archive_deleted", "batches_deleted", "rates_forgotten", "nodes_forgotten"])]
        "What was done away with since it was old.";
    MAINTENANCE: Histogram "ratchet_maintenance_seconds" []
        "How long a pass for old jobs, batches and rates took.";
    NOTHING_RUNS: Gauge "ratchet_nothing_runs" []
        "1 while jobs are due and no node is live, 0 otherwise. Set by processes that serve the HTTP interface, `ratchet serve` among them, at most 10 s old.";

    // Backlog.
    QUEUE_DUE: Gauge "ratchet_queue_due_jobs" [QUEUE]
        "Jobs of a measured queue that are due and wait to be claimed, counted up to 10,000; 0 while the queue is paused. Only the leader of `maintenance` reports it; 0 or no series elsewhere, and 0 after two failed reads in a row.";
    QUEUE_OLDEST_DUE: Gauge "ratchet_queue_oldest_due_seconds" [QUEUE]
        "For how many whole seconds the oldest of these jobs has been due; 0 if there is none. Only the leader of `maintenance` reports it; 0 or no series elsewhere, and 0 after two failed reads in a row.";

    // Leadership.
    ELECTION_TURNS: Counter "ratchet_election_turns_total"
        [ROLE, one_of("outcome", &["elected", "renewed", "other_leader", "conflict", "failed"])]
        "Turns in the election of a role.";
    STEP_DOWNS: Counter "ratchet_step_downs_total"
        [ROLE, one_of("reason", &["resigned", "fenced", "superseded"])]
        "Ends of leadership: given up, fenced by the node itself since it could not renew, or found to be another's.";
    LEADER: Gauge "ratchet_leader" [ROLE]
        "Whether this process leads in the role.";
    LEADER_TERM: Gauge "ratchet_leader_term" [ROLE]
        "The last term in which this process led.";
    GUARDED_WRITES_STALE: Counter "ratchet_guarded_writes_stale_total"
        [one_of("write", &["maintenance", "sweep"])]
        "Writes of a leader that the store refused since the term was over.";
    DAEMON_STARTS: Counter "ratchet_daemon_starts_total" [ROLE]
        "Daemons that were started here, again or for the first time.";
    DAEMON_FAILURES: Counter "ratchet_daemon_failures_total" [ROLE]
        "Daemons that failed or panicked here.";

    // Wakeups.
    WAKEUPS_SENT: Counter "ratchet_wakeups_sent_total" [one_of("outcome", &["sent", "given_up"])]
        "Hints to other nodes that were handed to the coordinator; `given_up`: it hung. A node with a \
         free slot wakes itself and sends none.";
    WAKEUPS_RECEIVED: Counter "ratchet_wakeups_received_total" [POOL]
        "Hints of others that cut the wait of a poller.";
    WAKEUPS_LOST: Counter "ratchet_wakeups_lost_total" []
        "Hints that came faster than they were taken, and were replaced by one to look everywhere.";
    COORDINATOR_OUTAGES: Counter "ratchet_coordinator_outages_total" []
        "Times the transport of wakeups was lost: meanwhile jobs wait for a poll.";

    // The store.
    STORE_CALLS: Counter "ratchet_store_calls_total"
        [label("operation", Values::Operations), one_of("result", &[
            "ok", "unavailable", "timeout", "contention", "full", "read_only", "invalid",
            "misconfigured", "schema_mismatch", "corrupt", "other"
        ])]
        "Calls of the store that were answered, failed or ran out of time.";
    STORE_CALL: Histogram "ratchet_store_call_seconds" [label("operation", Values::Operations)]
        "How long these calls took.";
    STORE_BACKOFF: Histogram "ratchet_store_backoff_seconds"
        [one_of("loop", &[
            "poller", "heartbeat", "join", "executor", "settler", "leader", "recurring", "limiter",
            "enqueue", "batch", "version"
        ])]
        "How long a caller waits before it tries a store again that has failed.";

    // Recurring definitions.
    RECURRING_FIRED: Counter "ratchet_recurring_fired_total"
        [one_of("outcome", &["created", "skipped", "stale"])]
        "Slots of recurring definitions: a job was made, was left out since one of them runs, or another node had fired it.";
    RECURRING_MISSED: Counter "ratchet_recurring_missed_total" []
        "Times a definition was fired while slots of it had been missed that do not run.";
    RECURRING_LATENESS: Histogram "ratchet_recurring_lateness_seconds" []
        "How long after a slot of a definition a node set out to fire it, by the database's clock.";
    RECURRING_UNREADABLE: Counter "ratchet_recurring_unreadable_total" []
        "Due definitions that this node cannot read, perhaps of a newer release.";
}
