use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{RateKey, RateLimiter};
use crate::error::Result;
use crate::model::RateAnswer;
use crate::rate::{Rate, Taken};
use crate::time;

/// The number of requested starts after which unused keys are deleted. A key is unused if its state
/// is the same as that of a new key.
const SWEEP_AFTER: u32 = 4_096;

/// A rate limiter that counts starts in the memory of this process. Each node counts separately. So
/// a cluster of `n` nodes may start up to `n` times as many bodies as the rate allows.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ratchet::BoxError> {
/// use std::time::Duration;
/// use ratchet::{Name, Rate, RateAnswer, RateKey, RateLimiter as _};
/// # use std::sync::Arc;
/// use ratchet::LocalLimiter;
///
/// let limiter = LocalLimiter::new();
/// let key = RateKey::global(Name::new("kind", "mail")?);
/// let rate = Rate::new(1, Duration::from_secs(60));
/// assert_eq!(limiter.take(&key, &rate).await?, RateAnswer::Granted);
/// assert!(matches!(limiter.take(&key, &rate).await?, RateAnswer::Wait(_)));
/// # Ok(()) }
/// ```
pub struct LocalLimiter {
    /// The time when the limiter was created. Stored times are the microseconds since then.
    began: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// The theoretical arrival time (`tat`) of each key, for each rate, in microseconds since
    /// `began`.
    rates: HashMap<Rate, HashMap<RateKey, i64>>,
    /// The number of starts that were requested since unused keys were last deleted.
    starts: u32,
}

impl LocalLimiter {
    /// Creates a limiter that has not counted any starts yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            began: time::monotonic(),
            counts: Mutex::default(),
        }
    }
}

impl Counts {
    fn take(&mut self, key: &RateKey, rate: &Rate, now: i64) -> Result<RateAnswer> {
        self.starts += 1;
        if self.starts >= SWEEP_AFTER {
            self.sweep(now);
        }
        let keys = match self.rates.entry(*rate) {
            Entry::Occupied(keys) => keys.into_mut(),
            Entry::Vacant(new) => {
                rate.validate()?;
                new.insert(HashMap::new())
            }
        };
        let known = keys.get_mut(key);
        let taken = rate.take(known.as_deref().copied(), now);
        if let Taken::Granted { tat } | Taken::Wait { tat: Some(tat), .. } = taken {
            match known {
                Some(known) => *known = tat,
                None => drop(keys.insert(key.clone(), tat)),
            }
        }
        Ok(taken.answer())
    }

    fn sweep(&mut self, now: i64) {
        self.starts = 0;
        self.rates.retain(|_, keys| {
            keys.retain(|_, tat| *tat > now);
            !keys.is_empty()
        });
    }
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
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Reads the clock while holding the lock. Otherwise a start with an earlier time could be
        // counted after a start with a later time.
        let now = time::duration_micros(time::monotonic().saturating_duration_since(self.began));
        counts.take(key, rate, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        // Some steps end exactly at the time at which the next start is granted.
        for step in [0, 0, 0, 0, 50, 50, 1, 99, 300, 0, 0, 0, 2_000, 0, 0, 0, 33] {
            tokio::time::advance(Duration::from_millis(step)).await;
            let now = i64::try_from(began.elapsed().as_micros()).unwrap();
            let taken = rate.take(known, now);
            if let Taken::Granted { tat } = taken {
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
        let counts = limiter.counts.lock().unwrap();
        assert_eq!(counts.rates[&rate].len(), 1);
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
