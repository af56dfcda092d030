//! State that nearly every loop uses.

use std::sync::{Arc, Mutex, PoisonError};

use super::settings::config::Config;
use crate::client::Calls;

/// The state that nearly every loop of a node uses: the store, the settings, and randomness for
/// jitter.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) calls: Arc<Calls>,
    pub(super) config: Config,
    random: Mutex<fastrand::Rng>,
}

impl Common {
    pub(super) fn new(calls: Arc<Calls>, config: Config, seed: Option<u64>) -> Self {
        let random = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self {
            calls,
            config,
            random: Mutex::new(random),
        }
    }

    /// Returns a random number in `0.0..1.0`, for jitter.
    pub(super) fn random(&self) -> f64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.f64()
    }
}
