//! How far the data of this process follows the log.

use std::time::Duration;

use ratchet_core::time;
use uuid::Uuid;

use crate::clock::Moment;
use crate::document::Header;

/// The last segment in the data of this process.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) number: u64,
    pub(crate) id: Uuid,
    /// The time of its commands.
    pub(crate) at: i64,
    /// A moment at which the log had no newer segment. `None` if none is known.
    current_at: Option<Moment>,
}

impl View {
    /// Creates the view of data that this header describes.
    pub(crate) fn new(header: &Header) -> Self {
        Self {
            number: header.number,
            id: header.id,
            at: header.at,
            current_at: None,
        }
    }

    /// Adds the next segment.
    pub(crate) fn advance(&mut self, header: &Header) {
        self.number = header.number;
        self.id = header.id;
        self.at = header.at;
    }

    /// Notes that the log had no newer segment at this moment.
    pub(crate) fn is_current_at(&mut self, moment: Moment) {
        self.current_at = Some(moment);
    }

    /// Returns whether the segment after this one may have been deleted already. Then the log seems
    /// to end here, a put of the next number can succeed, and another stale process may have put
    /// such an object. Segments are deleted only when they are older than `retention`, and the next
    /// segment is younger than the moment at which the log ended here. Half of the time is for
    /// clocks that run at different speeds.
    pub(crate) fn is_stale(&self, now: &Moment, retention: Duration) -> bool {
        let since = self.current_at.and_then(|moment| moment.until(now));
        since.is_none_or(|since| since >= retention / 2)
    }

    /// Returns whether the log had no newer segment at a moment since `duration` before `now`.
    pub(crate) fn was_current_within(&self, now: &Moment, duration: Duration) -> bool {
        let since = self.current_at.and_then(|moment| moment.until(now));
        since.is_some_and(|since| time::duration_millis(since) < time::duration_millis(duration))
    }
}
