//! Admits claimed jobs under the rate limits of their kinds, and settles those that have to wait.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::{Ended, outcome};
use crate::engine::common::Common;
use crate::engine::pools::run_pool::RunPool;
use crate::limiter::{Counted, RateKey};
use crate::metrics::{self, NotYet};
use crate::model::{Claim, JobInput, Outcome, RateAnswer, Settlement};
use crate::name::Name;
use crate::rate::Rate;
use crate::time;

/// The maximum wait that the node accepts from a limiter. After this time it asks the limiter
/// again.
const FARTHEST: Duration = Duration::from_secs(86_400);
/// The longest delay of a job with a limited key before it is tried again.
const LONGEST: Duration = Duration::from_secs(600);
/// Once this many keys have a recorded delay, each new delay first removes the keys whose delays
/// have passed.
const MANY: usize = 1_024;
/// The most by which jitter extends the delay of a job with a limited key, as a fraction of the
/// interval. The jitter prevents the delayed jobs of several nodes from returning together.
const JITTER: f64 = 0.1;

/// The rate limits of a node, and the jobs that they delay during one run.
pub(crate) struct Admission {
    common: Arc<Common>,
    limits: Arc<BTreeMap<Name, Arc<Counted>>>,
    delays: KeyDelays,
}

impl Admission {
    /// Creates the admission for these limits, by kind and by alias.
    pub(crate) fn new(common: Arc<Common>, limits: Arc<BTreeMap<Name, Arc<Counted>>>) -> Self {
        Self {
            common,
            limits,
            delays: KeyDelays::default(),
        }
    }

    /// Returns whether jobs of this kind are limited.
    pub(crate) fn limits(&self, kind: &Name) -> bool {
        self.limits.contains_key(kind)
    }
}

/// Admits a claim whose body is about to begin. Returns an error with its settlement if the body
/// may not begin.
///
/// If all jobs of the kind have to wait, the job is released and keeps its place in the claim
/// order, and the poller stops asking for the kind. If the limit has keys, the job is snoozed until
/// after the jobs of its key that were snoozed before it.
pub(crate) async fn admit(
    admission: &Admission,
    pool: &RunPool,
    claim: &Claim,
    input: &JobInput,
) -> Result<(), Settlement> {
    let (common, kind) = (&admission.common, &claim.route.kind);
    let Some(limit) = admission.limits.get(kind) else {
        return Ok(());
    };
    let end = |outcome| Err(Settlement::new(claim.token, outcome));
    if pool.throttles.is_closed(kind, time::monotonic()) {
        pool.metrics.put_off(NotYet::RateLimit);
        return end(Outcome::Released);
    }
    let key = match catch_unwind(AssertUnwindSafe(|| {
        limit.key(&input.payload, claim.payload_version)
    })) {
        Ok(Some(key)) => key,
        Ok(None) => return Ok(()),
        Err(panic) => return end(outcome(claim, Ended::Panicked(panic), common.random())),
    };
    let deadline = common.config.store_deadline;
    let take = AssertUnwindSafe(limit.limiter.take(&key, &limit.rate));
    let answer = tokio::time::timeout(deadline, futures_util::FutureExt::catch_unwind(take)).await;
    let now = time::monotonic();
    let wait = match answer {
        Ok(Ok(Ok(RateAnswer::Granted))) => {
            pool.throttles.works(kind);
            return Ok(());
        }
        Ok(Ok(Ok(RateAnswer::Wait(wait)))) => {
            pool.throttles.works(kind);
            let wait = wait.clamp(Duration::from_millis(1), FARTHEST);
            metrics::rate_limit_wait(kind, wait);
            wait
        }
        failed => {
            let why = match failed {
                Ok(Ok(Err(error))) => error.to_string(),
                Ok(Err(_)) => "the limiter panicked".to_owned(),
                _ => format!("the limiter did not answer within {deadline:?}"),
            };
            tracing::warn!(%kind, error = why, "a rate limiter failed; its jobs are given back \
                until it works again");
            pool.throttles.fail(kind, common.random(), now);
            pool.metrics.put_off(NotYet::LimiterFailed);
            return end(Outcome::Released);
        }
    };
    if limit.has_keys() {
        pool.metrics.put_off(NotYet::RateLimitKey);
        let jitter = limit.rate.interval().min(LONGEST);
        let jitter = jitter.mul_f64(JITTER * common.random());
        let delay = admission.delays.delay(key, &limit.rate, wait, now) + jitter;
        return end(Outcome::Snoozed { delay });
    }
    // All jobs of the kind have to wait. Only the name under which this job is stored is throttled
    // here; the kind's other names are throttled when one of their jobs is claimed.
    pool.throttles.close(kind, &limit.rate, wait, now);
    pool.metrics.put_off(NotYet::RateLimit);
    end(Outcome::Released)
}

/// The time at which the next job of each limited key may return, so that waiting jobs return one
/// after the other instead of repeatedly all at once.
#[derive(Debug, Default)]
struct KeyDelays(Mutex<HashMap<RateKey, Instant>>);

impl KeyDelays {
    /// Returns the delay of a job whose limiter requires a wait of `wait`.
    fn delay(&self, key: RateKey, rate: &Rate, wait: Duration, now: Instant) -> Duration {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MANY {
            last.retain(|_, at| *at > now);
        }
        let first = now + wait.min(LONGEST);
        let next = last
            .get(&key)
            .map_or(first, |last| first.max(*last + rate.interval()));
        let delay = next.saturating_duration_since(now).min(LONGEST);
        last.insert(key, now + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn jobs_of_a_key_come_back_an_interval_apart_and_in_ten_minutes_at_the_latest() {
        let (delays, now) = (KeyDelays::default(), time::monotonic());
        let rate = Rate::new(1, Duration::from_secs(60));
        let key = |text: &str| RateKey::of(Name::new("kind", "mail").unwrap(), text);
        let wait = Duration::from_secs(30);
        let delay = |text: &str, now| delays.delay(key(text), &rate, wait, now).as_secs();
        assert_eq!([0; 3].map(|_| delay("a", now)), [30, 90, 150]);
        assert_eq!(delay("b", now), 30);
        assert_eq!([0; 9].map(|_| delay("a", now)).last(), Some(&600));
        let later = now + Duration::from_secs(3_600);
        assert_eq!(delay("a", later), 30);
    }
}
