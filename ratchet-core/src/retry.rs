//! Retry policies: how often a failed job is retried, and after which delays.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::json::Json;
use crate::limits::MAX_DELAY;
use crate::time::whole_millis;

/// The delays between attempts, before jitter.
///
/// Durations are stored in whole milliseconds, rounded up.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{Backoff, RetryPolicy};
///
/// let backoff = Backoff::Linear {
///     base: Duration::from_secs(10),
///     cap: Duration::from_secs(60),
/// };
/// let policy = RetryPolicy::new(5, backoff);
/// assert_eq!(policy.delay(3, 0.5), Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Backoff {
    /// No delay. A failed job is retried at once.
    None,
    /// The same delay after every failed attempt.
    Fixed {
        /// The delay before each retry.
        #[serde(with = "millis")]
        delay: Duration,
    },
    /// A delay that grows linearly: `base · attempt`, limited to `cap`.
    Linear {
        /// The delay after the first attempt.
        #[serde(with = "millis")]
        base: Duration,
        /// The maximum delay, before jitter.
        #[serde(with = "millis")]
        cap: Duration,
    },
    /// A delay that doubles with each attempt: `base · 2^(attempt − 1)`, limited to `cap`.
    Exponential {
        /// The delay after the first attempt.
        #[serde(with = "millis")]
        base: Duration,
        /// The maximum delay, before jitter.
        #[serde(with = "millis")]
        cap: Duration,
    },
}

/// The maximum number of attempts of a job, and the delays between them. The policy is stored with
/// the job.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{NewJob, RetryPolicy};
///
/// let (base, cap) = (Duration::from_secs(1), Duration::from_secs(60));
/// // Up to five attempts, with delays of 1, 2, 4 and 8 s between them, each ± 10 %.
/// let policy = RetryPolicy::exponential(5, base, cap).with_jitter(10);
/// assert_eq!(policy.delay(4, 0.5), Duration::from_secs(8));
/// let job = NewJob::new("charge", &42).retry(policy);
/// # let _ = job;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    max_attempts: u32,
    backoff: Backoff,
    jitter_percent: u8,
}

impl RetryPolicy {
    /// Creates a policy that allows one attempt and no retry.
    #[must_use]
    pub const fn never() -> Self {
        Self::new(1, Backoff::None)
    }

    /// Creates a policy of at most `max_attempts` attempts with this backoff and no jitter.
    #[must_use]
    pub const fn new(max_attempts: u32, backoff: Backoff) -> Self {
        Self {
            max_attempts,
            backoff,
            jitter_percent: 0,
        }
    }

    /// Creates a policy of at most `max_attempts` attempts with the same delay between them.
    #[must_use]
    pub const fn fixed(max_attempts: u32, delay: Duration) -> Self {
        Self::new(max_attempts, Backoff::Fixed { delay })
    }

    /// Creates a policy of at most `max_attempts` attempts with delays of `base`, 2·`base`,
    /// 3·`base`, … up to `cap`.
    #[must_use]
    pub const fn linear(max_attempts: u32, base: Duration, cap: Duration) -> Self {
        Self::new(max_attempts, Backoff::Linear { base, cap })
    }

    /// Creates a policy of at most `max_attempts` attempts with delays of `base`, 2·`base`,
    /// 4·`base`, … up to `cap`.
    #[must_use]
    pub const fn exponential(max_attempts: u32, base: Duration, cap: Duration) -> Self {
        Self::new(max_attempts, Backoff::Exponential { base, cap })
    }

    /// Sets the jitter: each delay becomes up to `percent` % shorter or longer at random. Jobs that
    /// failed at the same time are then retried at different times.
    #[must_use]
    pub const fn with_jitter(mut self, percent: u8) -> Self {
        self.jitter_percent = percent;
        self
    }

    /// Returns the maximum number of attempts. When this number of attempts has failed, the job
    /// becomes a dead letter.
    #[must_use]
    pub const fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Returns the backoff: the delays between attempts, before jitter.
    #[must_use]
    pub const fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// Returns the jitter: the maximum random change of each delay, up or down, in percent of the
    /// delay.
    #[must_use]
    pub const fn jitter_percent(&self) -> u8 {
        self.jitter_percent
    }

    /// Returns whether the policy allows no further attempt after `attempts` attempts.
    #[must_use]
    pub const fn is_exhausted(&self, attempts: u32) -> bool {
        attempts >= self.max_attempts
    }

    /// Returns the delay after attempt number `attempt` (the first is 1). `random` is a random
    /// number in `0.0..1.0`, which determines the jitter.
    ///
    /// The result is `delay · (1 + jitter · (2 · random − 1))`. The cap applies before the jitter.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let attempt = attempt.max(1);
        let plain = match self.backoff {
            Backoff::None => return Duration::ZERO,
            Backoff::Fixed { delay } => delay,
            Backoff::Linear { base, cap } => base.saturating_mul(attempt).min(cap),
            Backoff::Exponential { base, cap } => {
                let factor = 1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX);
                base.saturating_mul(factor).min(cap)
            }
        };
        let spread = f64::from(self.jitter_percent) / 100.0;
        let factor = 1.0 + spread * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        Duration::try_from_secs_f64(plain.as_secs_f64() * factor).unwrap_or(plain)
    }

    /// The policy of a job for which a store keeps no policy text. It is the default policy of the
    /// first version of Ratchet. This constant must never change, because a change would affect
    /// stored jobs. If the default policy changes, the new default must be stored with each job.
    const UNSTORED: Self =
        Self::exponential(10, Duration::from_secs(1), Duration::from_secs(300)).with_jitter(25);

    /// Returns the JSON text that a store keeps for this policy. Returns `None` for the default
    /// policy of the first version of Ratchet, for which a store keeps no text.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `retry` if the policy cannot be serialized.
    pub fn to_stored(&self) -> Result<Option<String>, InvalidInput> {
        if *self == Self::UNSTORED {
            return Ok(None);
        }
        let json = Json::encode("retry", self)?;
        Ok(Some(json.as_str().to_owned()))
    }

    /// Reads a policy from a result of [`to_stored`](Self::to_stored). `None` is the default policy
    /// of the first version of Ratchet.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `retry` if the text is not a policy.
    pub fn from_stored(stored: Option<&str>) -> Result<Self, InvalidInput> {
        stored.map_or(Ok(Self::UNSTORED), |text| {
            serde_json::from_str(text)
                .map_err(|error| InvalidInput::new("retry", format!("cannot be read: {error}")))
        })
    }

    /// Rounds every duration up to whole milliseconds, the precision of a store.
    #[must_use]
    pub fn rounded(self) -> Self {
        let backoff = match self.backoff {
            Backoff::None => Backoff::None,
            Backoff::Fixed { delay } => Backoff::Fixed {
                delay: whole_millis(delay),
            },
            Backoff::Linear { base, cap } => Backoff::Linear {
                base: whole_millis(base),
                cap: whole_millis(cap),
            },
            Backoff::Exponential { base, cap } => Backoff::Exponential {
                base: whole_millis(base),
                cap: whole_millis(cap),
            },
        };
        Self { backoff, ..self }
    }

    /// Checks that the policy is valid.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `retry` if no attempt is allowed, a delay is zero, the cap is below
    /// the base, a delay is above [`MAX_DELAY`], or the jitter is above 100 %.
    pub fn validate(&self) -> Result<(), InvalidInput> {
        let problem = match self.backoff {
            _ if self.max_attempts == 0 => "allows no attempt".to_owned(),
            _ if self.jitter_percent > 100 => {
                format!(
                    "has a jitter of {} %; at most 100 % are allowed",
                    self.jitter_percent
                )
            }
            Backoff::Fixed { delay: base }
            | Backoff::Linear { base, .. }
            | Backoff::Exponential { base, .. }
                if base.is_zero() =>
            {
                "has a delay of zero; use Backoff::None to retry at once".to_owned()
            }
            Backoff::Fixed { delay: longest }
            | Backoff::Linear { cap: longest, .. }
            | Backoff::Exponential { cap: longest, .. }
                if longest > MAX_DELAY =>
            {
                format!("has a delay of {longest:?}; at most 1,000 years are allowed")
            }
            Backoff::Linear { base, cap } | Backoff::Exponential { base, cap } if cap < base => {
                format!("has a cap of {cap:?} below its base of {base:?}")
            }
            _ => return Ok(()),
        };
        Err(InvalidInput::new("retry", problem))
    }
}

impl Default for RetryPolicy {
    /// Returns a policy of 10 attempts, with an exponential backoff from 1 s up to 5 min, ± 25 %.
    fn default() -> Self {
        Self::exponential(10, Duration::from_secs(1), Duration::from_secs(300)).with_jitter(25)
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::time::duration_millis;

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(duration_millis(*value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn policies_round_trip_through_stores() {
        let policies = [
            RetryPolicy::default(),
            RetryPolicy::never(),
            RetryPolicy::new(u32::MAX, Backoff::None),
            RetryPolicy::linear(3, Duration::from_millis(1), Duration::from_secs(9)).with_jitter(7),
        ];
        for policy in policies {
            let stored = policy.to_stored().unwrap();
            assert_eq!(RetryPolicy::from_stored(stored.as_deref()), Ok(policy));
        }
        assert_eq!(RetryPolicy::UNSTORED.to_stored(), Ok(None));
        assert!(RetryPolicy::from_stored(Some("{}")).is_err());
    }

    #[test]
    fn delays_follow_the_table() {
        let cap = 10 * SECOND;
        let table: [(RetryPolicy, [u64; 5]); 4] = [
            (RetryPolicy::new(9, Backoff::None), [0, 0, 0, 0, 0]),
            (RetryPolicy::fixed(9, 3 * SECOND), [3, 3, 3, 3, 3]),
            (RetryPolicy::linear(9, 3 * SECOND, cap), [3, 6, 9, 10, 10]),
            (RetryPolicy::exponential(9, SECOND, cap), [1, 2, 4, 8, 10]),
        ];
        for (policy, delays) in table {
            for (attempt, seconds) in (1..).zip(delays) {
                assert_eq!(
                    policy.delay(attempt, 0.9),
                    Duration::from_secs(seconds),
                    "{policy:?} attempt {attempt}"
                );
            }
        }
    }

    #[test]
    fn jitter_is_exact_at_both_ends_and_in_the_middle_also_at_the_cap() {
        let (base, cap) = (Duration::from_millis(1_000), Duration::from_millis(300_000));
        let policy = RetryPolicy::exponential(99, base, cap).with_jitter(25);
        // Each row has the number of an attempt, and the delays after this attempt for the random
        // numbers 0, 0.5 and 1, in milliseconds.
        let table = [
            (1, [750, 1_000, 1_250]),
            (3, [3_000, 4_000, 5_000]),
            (9, [192_000, 256_000, 320_000]),
            (10, [225_000, 300_000, 375_000]),
            (40, [225_000, 300_000, 375_000]),
            (u32::MAX, [225_000, 300_000, 375_000]),
        ];
        for (attempt, millis) in table {
            let delays = [0.0, 0.5, 1.0].map(|random| policy.delay(attempt, random));
            let expected = millis.map(Duration::from_millis);
            assert_eq!(delays, expected, "attempt {attempt}");
        }
        let all = policy.with_jitter(100);
        assert_eq!(all.delay(2, 0.0), Duration::ZERO);
        assert_eq!(all.delay(2, 1.0), Duration::from_millis(4_000));
        // A number outside of `0.0..1.0` counts as the nearest end of this range.
        let outside = [-3.0, 7.0].map(|random| policy.delay(1, random));
        assert_eq!(outside, [750, 1_250].map(Duration::from_millis));
    }

    #[test]
    fn attempt_40_has_the_cap_whatever_the_backoff() {
        let cap = 300 * SECOND;
        for policy in [
            RetryPolicy::exponential(50, Duration::from_millis(1), cap),
            RetryPolicy::exponential(50, cap, cap),
            RetryPolicy::linear(50, 8 * SECOND, cap),
            RetryPolicy::fixed(50, cap),
        ] {
            assert_eq!(policy.delay(40, 0.5), cap, "{policy:?}");
        }
    }

    #[test]
    fn the_last_allowed_attempt_exhausts_the_policy() {
        let policy = RetryPolicy::fixed(3, SECOND);
        assert!(!policy.is_exhausted(2));
        assert!(policy.is_exhausted(3));
        assert!(RetryPolicy::never().is_exhausted(1));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(RetryPolicy::new(0, Backoff::None).validate().is_err());
        assert!(RetryPolicy::fixed(1, Duration::ZERO).validate().is_err());
        assert!(
            RetryPolicy::linear(1, 2 * SECOND, SECOND)
                .validate()
                .is_err()
        );
        assert!(RetryPolicy::default().with_jitter(101).validate().is_err());
        assert!(RetryPolicy::fixed(1, Duration::MAX).validate().is_err());
        assert!(RetryPolicy::default().validate().is_ok());
        let beyond = MAX_DELAY + Duration::from_millis(1);
        for (longest, allowed) in [(MAX_DELAY, true), (beyond, false)] {
            for policy in [
                RetryPolicy::fixed(1, longest),
                RetryPolicy::linear(1, SECOND, longest),
                RetryPolicy::exponential(1, SECOND, longest),
            ] {
                assert_eq!(policy.validate().is_ok(), allowed, "{policy:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn jitter_stays_in_its_band(attempt in 1_u32..200, random in 0.0..1.0_f64, percent in 0_u8..=100) {
            let policy = RetryPolicy::exponential(300, SECOND, 300 * SECOND);
            let plain = policy.delay(attempt, 0.5).as_secs_f64();
            let moved = policy.with_jitter(percent).delay(attempt, random).as_secs_f64();
            let band = plain * f64::from(percent) / 100.0 + 1e-6;
            prop_assert!((moved - plain).abs() <= band);
        }

        #[test]
        fn policies_round_trip_as_json(base in 1_u64..10_000, more in 0_u64..10_000, jitter in 0_u8..=100) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(base + more));
            let policy = RetryPolicy::exponential(7, base, cap).with_jitter(jitter);
            let text = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy);
        }
    }
}
