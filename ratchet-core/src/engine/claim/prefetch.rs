//! Prefetch: decides how many claims to hold beyond the running ones.
//!
//! Other nodes cannot run the claims that wait on this node. So the node prefetches only as many
//! claims as it is likely to begin within [`BASE`] and [`CALLS`] claim calls, by the rate at which
//! it finishes jobs. The slower the calls are, the more jobs end while one is under way. Slow jobs
//! are hardly ever prefetched; jobs that end at once are prefetched by the hundred. Claims that
//! wait too long are handed back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::settle::held_claims::HeldClaims;
use crate::time;

/// The amount of prefetched work, as the time in which the node is likely to finish it, with a
/// store that answers at once.
const BASE: Duration = Duration::from_millis(25);
/// How many claim calls are added to [`BASE`]: while one call is under way, the node settles the
/// jobs of the call before it, and this also takes about as long as a call.
const CALLS: u32 = 2;
/// The longest time that is added to [`BASE`].
const LONGEST: Duration = Duration::from_millis(250);
/// The part of the average duration of a claim call that comes from the last one.
const LAST_CALL: f64 = 0.2;
/// The shortest time between two measurements of the rate.
const WINDOW: Duration = Duration::from_millis(2);

/// Measures how many jobs a node ends per second, and how long its claim calls take.
pub(super) struct FinishRate {
    measured_at: Instant,
    ended: u64,
    per_second: f64,
    /// The average duration of a claim call, in seconds.
    call: f64,
}

impl FinishRate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            measured_at: now,
            ended: 0,
            per_second: 0.0,
            call: 0.0,
        }
    }

    /// Records that `ended` jobs in total had ended at `now`. The longer the time since the last
    /// measurement, the more the new rate replaces the old one. Jobs end in batches, so the rate is
    /// an average over about [`BASE`].
    pub(super) fn measure(&mut self, ended: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.measured_at);
        if elapsed < WINDOW {
            return;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate does not need to be exact"
        )]
        let new = (ended - self.ended) as f64 / elapsed.as_secs_f64();
        let weight = elapsed.as_secs_f64() / (elapsed + BASE).as_secs_f64();
        self.per_second += (new - self.per_second) * weight;
        self.measured_at = now;
        self.ended = ended;
    }

    /// Records the duration of a claim call.
    pub(super) fn called(&mut self, took: Duration) {
        self.call += (took.as_secs_f64() - self.call) * LAST_CALL;
    }

    /// Returns how many claims to hold beyond the running ones, at most `limit`.
    pub(super) fn prefetch(&self, limit: usize) -> usize {
        let calls = (self.call * f64::from(CALLS)).min(LONGEST.as_secs_f64());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and a rate is never negative"
        )]
        let wanted = (self.per_second * (BASE.as_secs_f64() + calls)) as usize;
        wanted.min(limit)
    }
}

/// Hands back claims that have waited too long. Runs as long as the node.
pub(crate) async fn run(claims: Arc<HeldClaims>, ttl: Duration) {
    loop {
        tokio::time::sleep(ttl / 4).await;
        for pool in &claims.pools {
            let older = pool.ready.take_older(ttl, time::monotonic());
            pool.metrics.prefetch_expired(older.len());
            pool.metrics.waiting.set(pool.ready.len());
            claims.hand_back(pool, older);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_follows_the_rate_and_has_a_limit() {
        let start = time::monotonic();
        let mut rate = FinishRate::new(start);
        assert_eq!(rate.prefetch(500), 0);
        for second in 1..=20_u32 {
            rate.measure(
                u64::from(second) * 8_000,
                start + Duration::from_secs(second.into()),
            );
        }
        assert!(
            (190..=200).contains(&rate.prefetch(500)),
            "expected 190 to 200 prefetched jobs: 8,000 jobs per second for 25 ms"
        );
        assert_eq!(rate.prefetch(100), 100);
        (0..40).for_each(|_| rate.called(Duration::from_millis(10)));
        assert!(
            (340..=360).contains(&rate.prefetch(500)),
            "expected 340 to 360 prefetched jobs: 8,000 jobs per second for 45 ms"
        );
        (0..40).for_each(|_| rate.called(Duration::from_secs(60)));
        assert!((2_000..=2_200).contains(&rate.prefetch(5_000)));
        rate.measure(160_000, start + Duration::from_secs(25));
        assert!(rate.prefetch(500) <= 11, "expected the jobs of 275 ms");
    }

    /// Between two batches of settlements, no job ends for a while. If the node then prefetched
    /// less, it would claim the next batch only after all jobs of the last one have ended.
    #[test]
    fn prefetch_is_steady_while_jobs_end_in_batches() {
        let start = time::monotonic();
        let mut rate = FinishRate::new(start);
        for batch in 1..=20_u32 {
            let at = start + Duration::from_millis(10) * batch;
            let ended = u64::from(batch) * 300;
            rate.measure(ended - 300, at - Duration::from_millis(3));
            if batch > 10 {
                let before = rate.prefetch(1_000);
                assert!(
                    before >= 500,
                    "{before} instead of 750 before batch {batch}"
                );
            }
            rate.measure(ended, at);
        }
    }
}
