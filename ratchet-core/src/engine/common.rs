//! State that nearly every loop uses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::settings::config::Config;
use crate::client::Calls;
use crate::time;

/// The jitter of a pause, as a fraction in either direction.
const JITTER: f64 = 0.1;

/// The state that nearly every loop of a node uses: the store, the settings, and randomness for
/// jitter.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) calls: Arc<Calls>,
    pub(super) config: Config,
    built: Instant,
    random: Mutex<fastrand::Rng>,
}

impl Common {
    pub(super) fn new(calls: Arc<Calls>, config: Config, seed: Option<u64>) -> Self {
        let random = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self {
            calls,
            config,
            built: time::monotonic(),
            random: Mutex::new(random),
        }
    }

    /// Returns a pause of about `wait`. If the pause cannot be [aligned](Self::aligned), adds
    /// jitter.
    pub(super) fn pause(&self, wait: Duration) -> Duration {
        let jitter = || wait.mul_f64(1.0 + JITTER * (2.0 * self.random() - 1.0));
        self.aligned(wait).unwrap_or_else(jitter)
    }

    /// Returns a pause of at most `wait` that ends at a multiple of the idle interval, if `wait` is
    /// long enough to reach one. So all loops call the database at about the same time, and the
    /// database can rest in between. Returns `None` for a pause of less than half of the interval,
    /// or without an idle interval.
    pub(super) fn aligned(&self, wait: Duration) -> Option<Duration> {
        let interval = self.config.idle_interval?;
        let spent = self.built.elapsed().as_secs_f64() % interval.as_secs_f64();
        let left = interval.saturating_sub(Duration::from_secs_f64(spent));
        let end = match left < Duration::from_secs(1) {
            true => wait,
            false => wait.min(left),
        };
        (wait >= interval / 2).then_some(end)
    }

    /// Returns a random number in `0.0..1.0`, for jitter.
    pub(super) fn random(&self) -> f64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.f64()
    }
}
