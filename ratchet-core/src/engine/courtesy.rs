//! Courtesy: a node that freed a permit does not always have it back before the others know of it.
//!
//! They are told ([`Client::wake_others`](crate::client::Client)), but the hint has a way to go, and
//! the node that frees a permit is the first to ask for it: with enough jobs of its own it would keep
//! the permit for ever. So its pollers rest for [`PAUSE`] once in [`APART`] at most. A node that is alone
//! in the cluster never does, and tells nobody.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long pollers rest: longer than a hint and the claim that it leads to take.
const PAUSE: Duration = Duration::from_millis(10);
/// How long after the beginning of a rest the next may begin: one part in twenty of the time.
const APART: Duration = Duration::from_millis(200);

/// When the last rest began.
#[derive(Debug, Default)]
pub(super) struct Courtesy(Mutex<Option<Instant>>);

impl Courtesy {
    /// A permit is free again.
    pub(super) fn freed(&self, now: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= APART) {
            *last = Some(now);
        }
    }

    /// Until when the pollers rest, if they do.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| last + PAUSE).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;

    #[tokio::test(start_paused = true)]
    async fn rests_are_short_and_seldom_however_many_permits_are_freed() {
        let (courtesy, start) = (Courtesy::default(), time::monotonic());
        assert_eq!(courtesy.until(start), None);
        let mut rested = 0;
        for millis in 0..1_000 {
            let now = start + Duration::from_millis(millis);
            courtesy.freed(now);
            rested += u32::from(courtesy.until(now).is_some());
        }
        assert_eq!(rested, 50);
        let later = start + Duration::from_secs(60);
        assert_eq!(courtesy.until(later), None);
        courtesy.freed(later);
        assert_eq!(courtesy.until(later), Some(later + PAUSE));
    }
}
