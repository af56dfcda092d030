//! Prefetch: decides how many claims to hold beyond the running ones.
//!
//! Other nodes cannot run the claims that wait on this node. So the node prefetches only as many
//! claims as it is likely to begin within [`HORIZON`], by the rate at which it finishes jobs. Slow
//! jobs are never prefetched; jobs that end at once are prefetched by the hundred. Claims that wait
//! too long are handed back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::settle::held_claims::HeldClaims;
use crate::time;

/// The amount of prefetched work, as the time in which the node is likely to finish it.
const HORIZON: Duration = Duration::from_millis(25);
/// The shortest time over which the rate is measured.
const WINDOW: Duration = Duration::from_millis(2);

/// Measures how many jobs a node ends per second.
pub(super) struct FinishRate {
    measured_at: Instant,
    ended: u64,
    per_second: f64,
}

impl FinishRate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            measured_at: now,
            ended: 0,
            per_second: 0.0,
        }
    }

    /// Records that `ended` jobs in total had ended at `now`. The longer the time since the last
    /// measurement, the more the new rate replaces the old one.
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
        let weight = elapsed.as_secs_f64() / (elapsed + WINDOW).as_secs_f64();
        self.per_second += (new - self.per_second) * weight;
        self.measured_at = now;
        self.ended = ended;
    }

    /// Returns how many claims to hold beyond the running ones, at most `limit`.
    pub(super) fn prefetch(&self, limit: usize) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and a rate is never negative"
        )]
        let wanted = (self.per_second * HORIZON.as_secs_f64()) as usize;
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
        rate.measure(160_000, start + Duration::from_secs(25));
        assert_eq!(rate.prefetch(500), 0);
    }
}
