//! The requests of a rate limiter to a store, and the store's answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::limits;
use crate::name::Name;
use crate::rate::Rate;

/// A request to start one job under a key that has a rate limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateRequest {
    /// The key. All starts under the same key share one rate limit.
    pub key: Name,
    /// The rate limit: the maximum number of starts per interval.
    pub rate: Rate,
}

impl RateRequest {
    /// Creates a request for one start under `key`, at this rate.
    #[must_use]
    pub const fn new(key: Name, rate: Rate) -> Self {
        Self { key, rate }
    }

    /// Checks all requests of a call.
    ///
    /// # Errors
    /// [`StoreErrorKind::Invalid`] with the first problem found.
    pub fn validate_all(requests: &[Self]) -> Result<(), StoreError> {
        let checked: Result<(), InvalidInput> = limits::check_batch("requests", requests.len())
            .and_then(|()| requests.iter().try_for_each(|one| one.rate.validate()));
        checked.map_err(|problem| {
            StoreError::new(StoreErrorKind::Invalid, "take").with_source(problem)
        })
    }
}

/// The answer of a rate limiter or of a store to a request for one start.
///
/// ```
/// use std::time::Duration;
/// use ratchet::RateAnswer;
///
/// let answer = RateAnswer::Wait(Duration::from_secs(2));
/// if let RateAnswer::Wait(time) = answer {
///     println!("again in {time:?}");
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateAnswer {
    /// The job may start now, and the start is counted.
    Granted,
    /// The job must wait, and no start is counted. A new request after this time is granted, unless
    /// another request for the key is granted first.
    Wait(Duration),
}
