use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter as Governor};
use tokio::time::Instant;

use super::{RateKey, RateLimiter};
use crate::error::{InvalidInput, Result};
use crate::model::RateAnswer;
use crate::rate::Rate;
use crate::time;

/// After so many starts, keys that are as if never used are forgotten.
const SWEEP_AFTER: u32 = 4_096;

/// Counts in the memory of this process, each node by itself: a cluster of `n` nodes makes up to `n`
/// times as many starts.
pub struct LocalLimiter {
    clock: MonotonicClock,
    rates: Mutex<Rates>,
}

type Keyed = Governor<RateKey, HashMapStateStore<RateKey>, MonotonicClock, NoOpMiddleware<Nanos>>;

/// The keys of each rate.
#[derive(Default)]
struct Rates {
    keyed: HashMap<Rate, Arc<Keyed>>,
    starts: u32,
}

impl LocalLimiter {
    /// A limiter that has counted nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: MonotonicClock {
                began: time::monotonic(),
            },
            rates: Mutex::default(),
        }
    }

    /// What counts the keys of this rate.
    fn keyed(&self, rate: &Rate) -> Result<Arc<Keyed>, InvalidInput> {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.starts += 1;
        if rates.starts >= SWEEP_AFTER {
            rates.starts = 0;
            rates.keyed.values().for_each(|keyed| keyed.retain_recent());
            rates.keyed.retain(|_, keyed| !keyed.is_empty());
        }
        if let Some(keyed) = rates.keyed.get(rate) {
            return Ok(Arc::clone(keyed));
        }
        let store = HashMapStateStore::default();
        let keyed = Arc::new(Governor::new(quota(rate)?, store, self.clock.clone()));
        rates.keyed.insert(*rate, Arc::clone(&keyed));
        Ok(keyed)
    }
}

fn quota(rate: &Rate) -> Result<Quota, InvalidInput> {
    rate.validate()?;
    let burst =
        NonZeroU32::new(rate.at_once()).ok_or_else(|| InvalidInput::new("burst", "is 0"))?;
    let quota = Quota::with_period(rate.interval());
    let quota = quota.ok_or_else(|| InvalidInput::new("per", "is zero"))?;
    Ok(quota.allow_burst(burst))
}

impl Default for LocalLimiter {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalLimiter")
    }
}

#[async_trait]
impl RateLimiter for LocalLimiter {
    async fn take(&self, key: &RateKey, rate: &Rate) -> Result<RateAnswer> {
        let keyed = self.keyed(rate)?;
        Ok(match keyed.check_key(key) {
            Ok(()) => RateAnswer::Granted,
            Err(not_until) => {
                let wait = not_until.wait_time_from(self.clock.now());
                RateAnswer::Wait(time::whole_millis(wait.max(Duration::from_millis(1))))
            }
        })
    }
}

/// The process's monotonic clock, which follows tokio's paused time in tests.
#[derive(Clone, Debug)]
struct MonotonicClock {
    began: Instant,
}

impl Clock for MonotonicClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        time::monotonic()
            .saturating_duration_since(self.began)
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

    fn key(text: &str) -> RateKey {
        RateKey::of(Name::new("kind", "mail").unwrap(), text)
    }

    #[tokio::test(start_paused = true)]
    async fn it_grants_what_the_rule_of_the_core_grants() {
        let rate = Rate::new(10, Duration::from_secs(1)).burst(3);
        let limiter = LocalLimiter::new();
        let began = time::monotonic();
        let mut known = None;
        // Steps that meet the edges and steps that do not.
        for step in [0, 0, 0, 0, 50, 50, 1, 99, 300, 0, 0, 0, 2_000, 0, 0, 0, 33] {
            tokio::time::advance(Duration::from_millis(step)).await;
            let now = i64::try_from(began.elapsed().as_micros()).unwrap();
            let taken = rate.take(known, now);
            if let crate::rate::Taken::Granted { tat } = taken {
                known = Some(tat);
            }
            let answer = limiter.take(&key("a"), &rate).await.unwrap();
            assert_eq!(answer, taken.answer(), "at {now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_and_rates_have_nothing_to_do_with_each_other() {
        let limiter = LocalLimiter::new();
        let slow = Rate::new(1, Duration::from_secs(60));
        let fast = Rate::new(2, Duration::from_secs(1));
        for (text, rate, granted) in [
            ("a", slow, true),
            ("a", slow, false),
            ("b", slow, true),
            ("a", fast, true),
        ] {
            let answer = limiter.take(&key(text), &rate).await.unwrap();
            assert_eq!(answer == RateAnswer::Granted, granted, "{text} at {rate:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_are_forgotten_and_busy_ones_are_not() {
        let limiter = LocalLimiter::new();
        let rate = Rate::new(1, Duration::from_secs(1));
        for number in 0..SWEEP_AFTER - 2 {
            limiter
                .take(&key(&number.to_string()), &rate)
                .await
                .unwrap();
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        limiter.take(&key("busy"), &rate).await.unwrap();
        let answer = limiter.take(&key("busy"), &rate).await.unwrap();
        assert!(matches!(answer, RateAnswer::Wait(_)));
        assert_eq!(limiter.keyed(&rate).unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_rate_that_makes_no_sense_is_refused() {
        let error = LocalLimiter::new()
            .take(&key("a"), &Rate::new(0, Duration::from_secs(1)))
            .await
            .unwrap_err();
        assert_eq!(error.invalid_input().unwrap().field(), "limit");
    }
}
