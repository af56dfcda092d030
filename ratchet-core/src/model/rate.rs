//! Rates: what a limiter asks a store for.

use std::time::Duration;

use crate::error::{InvalidInput, StoreError, StoreErrorKind};
use crate::limits;
use crate::name::Name;
use crate::rate::Rate;

/// Asks for one start under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateRequest {
    /// The limited key: all starts under one key share its rate.
    pub key: Name,
    /// How many may start in a time.
    pub rate: Rate,
}

impl RateRequest {
    /// One start under `key`, at this rate.
    #[must_use]
    pub const fn new(key: Name, rate: Rate) -> Self {
        Self { key, rate }
    }

    /// Checks a whole call.
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

/// Whether one more may start now.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateAnswer {
    /// It may, and was counted.
    Granted,
    /// Not yet: nothing was counted. It may begin this long from now, if no other comes first.
    Wait(Duration),
}
