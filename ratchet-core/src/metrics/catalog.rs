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
    /// A count that only increases.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
    /// A distribution of values, which are counted in buckets.
    Histogram,
}

/// The definition of a metric.
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
    /// The name of the metric, in the form that Prometheus requires.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: Kind,
    /// The unit of the values. `None` if the values have no unit.
    pub unit: Option<Unit>,
    /// The labels of the metric. Every time series of the metric has all of them.
    pub labels: &'static [Label],
    /// The description of the metric, for operators.
    pub description: &'static str,
}

/// A label of a metric.
///
/// See [`Values`] for an example.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Label {
    /// The name of the label.
    pub name: &'static str,
    /// The values that the label may have.
    pub values: Values,
}

/// The possible values of a label. They are limited in number, so that the number of time series is
/// limited too.
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
    /// A fixed list of values.
    OneOf(&'static [&'static str]),
    /// The kinds of jobs. For enqueued jobs, these are the first [`MAX_KINDS`] kinds that the
    /// process enqueues. For all other metrics, these are the kinds that are registered with the
    /// node. All other kinds have the value [`OTHER`].
    Kinds,
    /// The pools of the node.
    Pools,
    /// The roles for which this process is a candidate.
    Roles,
    /// The queues that were named with
    /// [`NodeBuilder::measured_queues`](crate::NodeBuilder::measured_queues). There are at most 50.
    Queues,
    /// The names of the store calls, such as `enqueue`. There are about sixty.
    Operations,
}

/// The label value of all kinds that have no label value of their own.
pub const OTHER: &str = "other";
/// The maximum number of kinds that have their own label value in a process's metrics of enqueued
/// jobs.
pub const MAX_KINDS: usize = 200;

/// The label values for the kinds of store errors.
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

/// Declares a constant for each metric, and the list [`CATALOG`] of all metrics.
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
        /// All metrics.
        pub const CATALOG: &[Metric] = &[$($id),*];
    };
}

catalog! {
    // Enqueueing and acting.
    JOBS_ENQUEUED: Counter "ratchet_jobs_enqueued_total"
        [KIND, one_of("outcome", &["created", "duplicate", "replaced", "withheld"])]
        "Jobs that clients and nodes enqueued, except those enqueued in a transaction of the application and those of recurring definitions.";
    JOB_ACTIONS: Counter "ratchet_job_actions_total"
        [
            one_of("action", &["cancel", "requeue", "pause", "resume", "reschedule", "set_priority", "delete"]),
            one_of("outcome", &["became", "cancel_requested", "changed", "deleted", "key_taken", "refused", "not_found"])
        ]
        "Jobs to which a client of this process applied an action, such as cancelling them.";

    // Claiming.
    CLAIM_CALLS: Counter "ratchet_claim_calls_total"
        [POOL, one_of("result", &["full", "partial", "empty", "failed"])]
        "Calls of this process that claim jobs. `full`: the store returned as many jobs as \
         requested. `partial`: it returned fewer. `empty`: it returned none.";
    JOBS_CLAIMED: Counter "ratchet_jobs_claimed_total" [POOL]
        "Jobs that the nodes of this process claimed.";
    POLL_DELAY: Histogram "ratchet_poll_delay_seconds" [POOL]
        "Planned delay before the next poll, after a poll that found too few jobs or failed. While \
         a leader watches for due jobs for an idle node, the actual delay of that node is \
         longer.";
    CLAIMS_WAITING: Gauge "ratchet_claims_waiting" [POOL]
        "Prefetched claims that wait for a slot, as of the last poll or check.";
    PREFETCH_EXPIRED: Counter "ratchet_prefetch_expired_total" [POOL]
        "Prefetched claims that were given back because no slot became free within the prefetch \
         TTL.";
    CLAIMS_HANDED_BACK: Counter "ratchet_claims_handed_back_total" [POOL]
        "Claims that were given back before their bodies began: because the node drained, became a \
         standby, or had prefetched them too early.";
    CLAIMS_LOST: Counter "ratchet_claims_lost_total"
        [POOL, one_of("during", &["wait", "run"])]
        "Claims that this node lost before they ended, while they waited or while their bodies \
         ran.";
    JOBS_PUT_OFF: Counter "ratchet_jobs_put_off_total"
        [POOL, one_of("reason", &["suspect", "newer_payload", "rate_limit", "rate_limit_key", "limiter_failed", "breaker"])]
        "Claimed jobs that were given back because their bodies may not begin yet.";

    // Running.
    JOBS_BEGUN: Counter "ratchet_jobs_begun_total" [KIND, POOL]
        "Bodies that began.";
    JOB_WAIT: Histogram "ratchet_job_wait_seconds" [KIND, POOL]
        "Time from the due time of a job until its body began: by the database's clock until the claim, then by the node's monotonic clock.";
    BODY: Histogram "ratchet_body_seconds" [KIND, POOL]
        "Run time of bodies, whatever their outcome.";
    JOBS_RUNNING: Gauge "ratchet_jobs_running" [POOL]
        "Bodies that are running.";
    SLOTS: Gauge "ratchet_slots" [POOL]
        "Number of bodies that can run at once.";
    JOB_PANICS: Counter "ratchet_job_panics_total" [KIND, POOL]
        "Bodies that panicked.";
    JOB_TIMEOUTS: Counter "ratchet_job_timeouts_total" [KIND, POOL]
        "Bodies that were dropped when their timeout expired.";
    JOB_STALLS: Counter "ratchet_job_stalls_total" [KIND, POOL]
        "Bodies that were dropped because they gave no sign of life within their stall timeout. \
         Their claims also count as lost.";
    JOBS_UNREADABLE: Counter "ratchet_jobs_unreadable_total" [KIND, POOL]
        "Jobs whose payload could not be decoded, so that no body ran. They are dead letters.";
    SUSPECTS_BEGUN: Counter "ratchet_suspects_begun_total" [POOL]
        "Jobs whose start the node recorded in the store before it ran them, because an earlier \
         claim of the job was lost when its node crashed or stopped.";
    RATE_LIMIT_WAIT: Histogram "ratchet_rate_limit_wait_seconds" [KIND]
        "Waiting time that a rate limiter imposed on a job.";
    BREAKERS_OPEN: Gauge "ratchet_breakers_open" [KIND]
        "Number of nodes of this process on which the circuit breaker of the kind is open or half-open.";
    BREAKER_CHANGES: Counter "ratchet_breaker_changes_total"
        [KIND, one_of("change", &["opened", "reopened", "closed"])]
        "Changes of circuit breakers. `reopened`: a probe did not succeed.";
    PERMIT_WAIT: Histogram "ratchet_permit_wait_seconds" [POOL]
        "Same as ratchet_job_wait_seconds, for jobs that needed a permit.";
    PERMIT_RESTS: Counter "ratchet_permit_rests_total" [POOL]
        "Pauses of pollers after this node released permits, so that other nodes can take the permits.";

    // Ending.
    JOBS_SETTLED: Counter "ratchet_jobs_settled_total"
        [KIND, POOL, one_of("outcome", &["succeeded", "retried", "failed", "snoozed", "released", "cancelled", "expired"])]
        "Claims that this node ended. `failed` are dead letters, `retried` are failed attempts that will be retried, \
         `expired` are jobs that were claimed after their expiry and did not run.";
    SETTLE_BATCH: Histogram "ratchet_settle_batch_jobs" []
        "Number of claims that one settle call ended.";
    SETTLE: Histogram "ratchet_settle_seconds" []
        "Duration of settle calls.";
    SETTLE_RETRIES: Counter "ratchet_settle_retries_total" [one_of("error", ERRORS)]
        "Settle calls that failed. Each is retried until it succeeds.";
    SETTLEMENTS_STALE: Counter "ratchet_settlements_stale_total" [POOL]
        "Settlements that came too late: this node had already lost the claim, so the body may run \
         a second time.";
    SETTLEMENTS_REFUSED: Counter "ratchet_settlements_refused_total" []
        "Settlements that the store rejected with a permanent error, although it applied others.";
    REPORTS: Counter "ratchet_reports_total"
        [one_of("outcome", &["applied", "stale", "failed"])]
        "Reports of bodies: progress, checkpoints and signs of life. `stale`: the node no longer \
         held the claim. `failed`: the call failed.";

    // The node.
    NODES: Gauge "ratchet_nodes"
        [one_of("status", &["joining", "active", "draining", "left", "dead"])]
        "Nodes that this process runs, by status.";
    HEARTBEATS: Counter "ratchet_heartbeats_total" [one_of("outcome", &["ok", "failed"])]
        "Heartbeats that were sent.";
    HEARTBEAT: Histogram "ratchet_heartbeat_seconds" []
        "Duration of heartbeats, including those that failed.";
    CLOCK_SKEW: Gauge "ratchet_clock_skew_seconds" []
        "How far the node's clock is ahead of the database's; negative if it is behind.";
    TAKEN_FOR_DEAD: Counter "ratchet_taken_for_dead_total"
        [one_of("result", &["renewed", "displaced"])]
        "Times that this node found itself declared dead. `renewed`: the node continued under a \
         new id. `displaced`: another node with the same label had replaced it.";
    DRAIN: Histogram "ratchet_drain_seconds"
        [one_of("result", &["clean", "interrupted", "abandoned"])]
        "Duration of drains, until no claim was held. `interrupted`: the node asked running bodies \
         to stop. `abandoned`: claims were left for other nodes to reclaim.";
    LOOP_PANICS: Counter "ratchet_loop_panics_total"
        [one_of("loop", &[
            "heartbeat", "reclaimer", "settler", "reporter", "prefetch", "maintenance", "backlog", "beacons", "due_watch", "commit_watch", "recurring",
            "leader", "watchdog", "daemon", "gate", "slot", "poller"
        ])]
        "Loops of the engine that panicked and were restarted. This is a defect of Ratchet.";
    HOOK_PANICS: Counter "ratchet_hook_panics_total" []
        "Hooks of the application that panicked.";

    // Looking after the cluster.
    CLOCK_STEPS: Counter "ratchet_clock_steps_total" [one_of("direction", &["forward", "back"])]
        "Steps of the database's clock that this node saw between two of its heartbeats.";
    DATABASE_REWINDS: Counter "ratchet_database_rewinds_total" []
        "Times that this node found the database in an earlier state, after a failover to a copy that lacked writes, or after a restore.";
    NODES_DIED: Counter "ratchet_nodes_died_total" []
        "Nodes that this node marked as dead or left, because they sent no heartbeat.";
    CLAIMS_RECLAIMED: Counter "ratchet_claims_reclaimed_total"
        [one_of("reason", &["owner_lost", "owner_left", "not_started", "stalled", "overdue"])]
        "Claims that this node reclaimed. Their jobs are pending again, or cancelled if their cancellation was requested.";
    CLAIMS_UNDELIVERED: Counter "ratchet_claims_undelivered_total" []
        "Claims that this node gave back because the store's reply with these claims never \
         arrived.";
    CLAIMS_UNHELD: Gauge "ratchet_claims_unheld" []
        "Claims that the store listed under the node at its last two heartbeats although the node does not hold them. Their jobs wait.";
    JOBS_EXHAUSTED: Counter "ratchet_jobs_exhausted_total" []
        "Jobs that failed because their node crashed or stopped too often while running them. They \
         are dead letters.";
    SIGNALS_EXPIRED: Counter "ratchet_signals_expired_total" []
        "Jobs that failed because their signal did not arrive in time. They are dead letters.";
    JOBS_EXPIRED: Counter "ratchet_jobs_expired_total" []
        "Waiting jobs that this node cancelled because they had not begun before their expiry. Does \
         not count jobs that were claimed after their expiry: `expired` of ratchet_jobs_settled_total.";
    RECLAIM: Histogram "ratchet_reclaim_seconds" []
        "Duration of a pass that looks for dead nodes, lost claims, late signals and expired jobs.";
    MAINTENANCE_ROWS: Counter "ratchet_maintenance_rows_total"
        [one_of("what", &["jobs_deleted", "jobs_archived", "archive_deleted", "batches_deleted", "rates_forgotten", "nodes_forgotten"])]
        "Old rows that maintenance deleted or archived.";
    MAINTENANCE: Histogram "ratchet_maintenance_seconds" []
        "Duration of a maintenance pass for old jobs, batches and rates.";
    NOTHING_RUNS: Gauge "ratchet_nothing_runs" []
        "1 while jobs are due and no node is live, otherwise 0. A process that serves the HTTP \
         interface, such as `ratchet serve`, sets the gauge while clients use the dashboard, \
         `/ready` or `/metrics`. The value is at most 10 s old.";

    // Backlog.
    QUEUE_DUE: Gauge "ratchet_queue_due_jobs" [QUEUE]
        "Jobs of a measured queue that are due and wait to be claimed, counted up to 10,000; 0 while the queue or the kinds of all these jobs are paused. Only the leader of `maintenance` reports it; 0 or no series elsewhere, and 0 after two failed reads in a row.";
    QUEUE_OLDEST_DUE: Gauge "ratchet_queue_oldest_due_seconds" [QUEUE]
        "For how many whole seconds the oldest job counted in ratchet_queue_due_jobs has been due; 0 if there is none. Only the leader of `maintenance` reports it; 0 or no series elsewhere, and 0 after two failed reads in a row.";

    // Leadership.
    ELECTION_TURNS: Counter "ratchet_election_turns_total"
        [ROLE, one_of("outcome", &["elected", "renewed", "other_leader", "conflict", "failed"])]
        "Attempts of candidates in this process to become or remain the leader of a role.";
    STEP_DOWNS: Counter "ratchet_step_downs_total"
        [ROLE, one_of("reason", &["resigned", "fenced", "superseded"])]
        "Ends of leadership. `resigned`: the leader gave up the role. `fenced`: the leader could \
         not renew its lock in time. `superseded`: another owner held the lock.";
    LEADER: Gauge "ratchet_leader" [ROLE]
        "1 if this process leads in the role, otherwise 0.";
    LEADER_TERM: Gauge "ratchet_leader_term" [ROLE]
        "Number of the last term in which this process led.";
    GUARDED_WRITES_STALE: Counter "ratchet_guarded_writes_stale_total"
        [one_of("write", &["maintenance", "sweep"])]
        "Writes of a leader that the store refused because the leader's term had ended.";
    DAEMON_STARTS: Counter "ratchet_daemon_starts_total" [ROLE]
        "Daemons that this process started, including restarts.";
    DAEMON_FAILURES: Counter "ratchet_daemon_failures_total" [ROLE]
        "Daemons of this process that failed or panicked.";

    // Wakeups.
    WAKEUPS_SENT: Counter "ratchet_wakeups_sent_total" [one_of("outcome", &["sent", "given_up"])]
        "Wakeups for other nodes that were handed to the coordinator; `given_up`: the coordinator did \
         not respond in time. A node with a free slot wakes itself and sends none.";
    WAKEUPS_RECEIVED: Counter "ratchet_wakeups_received_total" [POOL]
        "Wakeups from other nodes and clients that ended the wait of a poller.";
    WAKEUPS_LOST: Counter "ratchet_wakeups_lost_total" []
        "Wakeups that arrived faster than the node read them, and were replaced by one wakeup for \
         all pollers.";
    COORDINATOR_OUTAGES: Counter "ratchet_coordinator_outages_total" []
        "Times that the transport of wakeups was lost. Until the transport works again, nodes find \
         new jobs only by polling.";

    // The store.
    STORE_CALLS: Counter "ratchet_store_calls_total"
        [label("operation", Values::Operations), one_of("result", &[
            "ok", "unavailable", "timeout", "contention", "full", "read_only", "invalid",
            "misconfigured", "schema_mismatch", "corrupt", "other"
        ])]
        "Calls to the store, by result.";
    STORE_CALL: Histogram "ratchet_store_call_seconds" [label("operation", Values::Operations)]
        "Duration of calls to the store.";
    STORE_BACKOFF: Histogram "ratchet_store_backoff_seconds"
        [one_of("loop", &[
            "poller", "heartbeat", "join", "executor", "settler", "leader", "recurring", "limiter",
            "enqueue", "batch", "version"
        ])]
        "Delay before a failed store call is retried, by loop.";

    // Recurring definitions.
    RECURRING_FIRED: Counter "ratchet_recurring_fired_total"
        [one_of("outcome", &["created", "skipped", "stale"])]
        "Slots of recurring definitions. `created`: a job was made. `skipped`: a job of an earlier slot had not ended. `stale`: another node had fired the slot.";
    RECURRING_MISSED: Counter "ratchet_recurring_missed_total" []
        "Firings that skipped at least one missed slot of their definition, so no job was made for \
         that slot.";
    RECURRING_LATENESS: Histogram "ratchet_recurring_lateness_seconds" []
        "Time from a slot of a definition until a node began to fire the slot, by the database's \
         clock.";
    RECURRING_UNREADABLE: Counter "ratchet_recurring_unreadable_total" []
        "Due definitions that this node cannot read, perhaps because a newer release wrote them.";
}
