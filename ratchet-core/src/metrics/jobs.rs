//! Metrics of single jobs.
//!
//! Getting a metric's handle from the recorder takes longer than incrementing a counter. So each
//! run of a node gets the handles of frequent metrics only once: at its start, or when a kind first
//! occurs in a pool.

use std::sync::OnceLock;
use std::time::Duration;

use ::metrics::{Counter, Histogram, SharedString};

use super::catalog::{
    BODY, CLAIM_CALLS, CLAIMS_HANDED_BACK, CLAIMS_LOST, CLAIMS_WAITING, JOB_PANICS, JOB_STALLS,
    JOB_TIMEOUTS, JOB_WAIT, JOBS_BEGUN, JOBS_CLAIMED, JOBS_PUT_OFF, JOBS_RUNNING, JOBS_SETTLED,
    JOBS_UNREADABLE, Metric, OTHER, PERMIT_RESTS, PERMIT_WAIT, POLL_DELAY, PREFETCH_EXPIRED,
    SETTLEMENTS_STALE, SLOTS, SUSPECTS_BEGUN,
};
use super::record::Amount;
use crate::model::{Claim, Outcome};
use crate::name::Name;
use crate::time::{millis_between, to_millis};

/// The metrics of one pool during one run of the node.
pub(crate) struct PoolMetrics {
    pool: SharedString,
    /// The kinds that are registered with the node, sorted.
    kinds: Vec<Name>,
    /// The metrics of each kind, in the order of `kinds`. The last entry is for all other kinds.
    by_kind: Box<[OnceLock<JobMetrics>]>,
    claimed: Counter,
    poll_delay: Histogram,
    stale: Counter,
    pub(crate) running: Amount,
    pub(crate) waiting: Amount,
    slots: Amount,
}

/// The metrics of jobs of one kind in one pool.
struct JobMetrics {
    begun: Counter,
    wait: Histogram,
    body: Histogram,
    settled: [Counter; 7],
}

/// The index of a kind's metrics in the [`PoolMetrics`] of a pool.
#[derive(Clone, Copy)]
pub(crate) struct JobPlace(usize);

/// The reason why a claimed job may not begin yet.
#[derive(Clone, Copy)]
pub(crate) enum NotYet {
    Suspect,
    NewerPayload,
    RateLimit,
    RateLimitKey,
    LimiterFailed,
    Breaker,
}

impl PoolMetrics {
    pub(crate) fn new(pool: &Name, kinds: &[Name]) -> Self {
        let mut kinds = kinds.to_vec();
        kinds.sort();
        let pool = pool.shared();
        let of = || [pool.clone()];
        JOBS_PUT_OFF.begin(&of());
        SETTLEMENTS_STALE.begin(&of());
        for kind in &kinds {
            let of = [kind.shared(), pool.clone()];
            JOBS_SETTLED.begin(&of);
            JOBS_UNREADABLE.begin(&of);
        }
        Self {
            by_kind: (0..=kinds.len()).map(|_| OnceLock::new()).collect(),
            kinds,
            claimed: JOBS_CLAIMED.counter(of()),
            poll_delay: POLL_DELAY.histogram(of()),
            stale: SETTLEMENTS_STALE.counter(of()),
            running: Amount::new(JOBS_RUNNING.gauge(of())),
            waiting: Amount::new(CLAIMS_WAITING.gauge(of())),
            slots: Amount::new(SLOTS.gauge(of())),
            pool,
        }
    }

    /// Sets the gauge of the pool's slots: how many bodies the pool can run at once.
    pub(crate) fn open(&self, slots: usize) {
        self.slots.set(slots);
    }

    /// Counts a poll that requested `limit` jobs. `claimed` is the number of jobs that the poll
    /// claimed, or `None` if it failed.
    pub(crate) fn polled(&self, limit: usize, claimed: Option<usize>) {
        let result = match claimed {
            None => "failed",
            Some(0) => "empty",
            Some(claimed) if claimed < limit => "partial",
            Some(_) => "full",
        };
        self.claimed.increment(claimed.unwrap_or_default() as u64);
        let values = [self.pool.clone(), result.into()];
        CLAIM_CALLS.counter(values).increment(1);
    }

    pub(crate) fn poll_delay(&self, delay: Duration) {
        self.poll_delay.record(delay);
    }

    pub(crate) fn prefetch_expired(&self, claims: usize) {
        self.add(&PREFETCH_EXPIRED, claims);
    }

    pub(crate) fn handed_back(&self, claims: usize) {
        self.add(&CLAIMS_HANDED_BACK, claims);
    }

    pub(crate) fn lost_waiting(&self) {
        self.lost("wait");
    }

    pub(crate) fn lost_running(&self) {
        self.lost("run");
    }

    fn lost(&self, during: &'static str) {
        let values = [self.pool.clone(), during.into()];
        CLAIMS_LOST.counter(values).increment(1);
    }

    pub(crate) fn put_off(&self, reason: NotYet) {
        let reason = match reason {
            NotYet::Suspect => "suspect",
            NotYet::NewerPayload => "newer_payload",
            NotYet::RateLimit => "rate_limit",
            NotYet::RateLimitKey => "rate_limit_key",
            NotYet::LimiterFailed => "limiter_failed",
            NotYet::Breaker => "breaker",
        };
        let values = [self.pool.clone(), reason.into()];
        JOBS_PUT_OFF.counter(values).increment(1);
    }

    pub(crate) fn suspect_begins(&self) {
        self.add(&SUSPECTS_BEGUN, 1);
    }

    pub(crate) fn permit_rest(&self) {
        self.add(&PERMIT_RESTS, 1);
    }

    pub(crate) fn stale(&self, settlements: usize) {
        self.stale.increment(settlements as u64);
    }

    /// Returns the index of this kind's metrics.
    pub(crate) fn place(&self, kind: &Name) -> JobPlace {
        JobPlace(self.kinds.binary_search(kind).unwrap_or(self.kinds.len()))
    }

    /// Counts a body that begins, and records how long its job waited since its due time.
    /// `since_claimed` is the time since the node received the claim.
    pub(crate) fn begun(&self, claim: &Claim, since_claimed: Duration) {
        let due = millis_between(to_millis(claim.run_at), to_millis(claim.token.claimed_at));
        let wait = due + since_claimed;
        let of = self.of(self.place(&claim.route.kind));
        of.begun.increment(1);
        of.wait.record(wait);
        if claim.route.permit.is_some() {
            PERMIT_WAIT.histogram([self.pool.clone()]).record(wait);
        }
    }

    /// Records the duration of a body.
    pub(crate) fn ran(&self, kind: &Name, ran_for: Duration) {
        self.of(self.place(kind)).body.record(ran_for);
    }

    pub(crate) fn panicked(&self, kind: &Name) {
        self.count_kind(&JOB_PANICS, kind);
    }

    pub(crate) fn timed_out(&self, kind: &Name) {
        self.count_kind(&JOB_TIMEOUTS, kind);
    }

    pub(crate) fn stalled(&self, kind: &Name) {
        self.count_kind(&JOB_STALLS, kind);
    }

    pub(crate) fn unreadable(&self, kind: &Name) {
        self.count_kind(&JOBS_UNREADABLE, kind);
    }

    /// Counts a settlement that the store applied, by its outcome.
    pub(crate) fn settled(&self, place: JobPlace, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Succeeded { .. } => 0,
            Outcome::Retry { .. } => 1,
            Outcome::Failed { .. } => 2,
            Outcome::Snoozed { .. } => 3,
            // A pool never holds an undelivered claim. `claims_undelivered` counts such claims.
            Outcome::Released | Outcome::Undelivered => 4,
            Outcome::Cancelled => 5,
            Outcome::Expired => 6,
        };
        self.of(place).settled[outcome].increment(1);
    }

    fn of(&self, place: JobPlace) -> &JobMetrics {
        self.by_kind[place.0].get_or_init(|| {
            let (kind, pool) = (self.kind(place), &self.pool);
            let of = || [kind.clone(), pool.clone()];
            let settled = |outcome: &'static str| {
                JOBS_SETTLED.counter([kind.clone(), pool.clone(), outcome.into()])
            };
            JobMetrics {
                begun: JOBS_BEGUN.counter(of()),
                wait: JOB_WAIT.histogram(of()),
                body: BODY.histogram(of()),
                settled: [
                    "succeeded",
                    "retried",
                    "failed",
                    "snoozed",
                    "released",
                    "cancelled",
                    "expired",
                ]
                .map(settled),
            }
        })
    }

    fn kind(&self, place: JobPlace) -> SharedString {
        let kind = self.kinds.get(place.0);
        kind.map_or_else(|| OTHER.into(), Name::shared)
    }

    fn count_kind(&self, metric: &Metric, kind: &Name) {
        let values = [self.kind(self.place(kind)), self.pool.clone()];
        metric.counter(values).increment(1);
    }

    fn add(&self, metric: &Metric, count: usize) {
        if count > 0 {
            metric.counter([self.pool.clone()]).increment(count as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_registered_is_counted_with_all_others() {
        let name = |text| Name::new("name", text).unwrap();
        let pool = PoolMetrics::new(&name("default"), &[name("resize"), name("mail")]);
        let label = |kind| pool.kind(pool.place(&name(kind))).to_string();
        assert_eq!(label("mail"), "mail");
        assert_eq!(label("resize"), "resize");
        assert_eq!([label("a"), label("n"), label("z")], [OTHER; 3]);
        pool.settled(pool.place(&name("z")), &Outcome::Released);
    }
}
