//! How far the data of this process follows the log.

use std::time::Duration;

use ratchet_core::time;
use uuid::Uuid;

use crate::bucket::Bucket;
use crate::clock::Moment;
use crate::document::Header;
use crate::error::{Failure, Result};

/// After this time without a look at the log, a process checks that no segment after its view was
/// deleted. The retention must be longer by what the clocks of a paused machine can hide: see
/// [`Builder::request_life`](crate::Builder::request_life).
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(5 * 60);

/// The last segment in the data of this process.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) number: u64,
    pub(crate) id: Uuid,
    /// The time of its commands.
    pub(crate) at: i64,
    /// A moment at which the log had no newer segment. `None` if none is known.
    current_at: Option<Moment>,
    /// The log has at least the segments up to this number.
    least: u64,
}

impl View {
    /// Creates the view of data that this header describes.
    pub(crate) fn new(header: &Header) -> Self {
        Self {
            number: header.number,
            id: header.id,
            at: header.at,
            current_at: None,
            least: header.number,
        }
    }

    /// Continues with the view of a snapshot.
    pub(crate) fn replace(&mut self, snapshot: Self) {
        let least = self.least;
        *self = snapshot;
        self.require(least);
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

    /// Notes that the log has at least the segments up to this number.
    pub(crate) fn require(&mut self, number: u64) {
        self.least = self.least.max(number);
    }

    /// Checks that the log may end with this segment.
    pub(crate) fn check_end(&self, bucket: &Bucket) -> Result<()> {
        if self.number >= self.least {
            return Ok(());
        }
        let missing = bucket.segment(self.number + 1);
        let problem = format!(
            "is missing: there are snapshots up to segment {}, but none can be read; were objects \
             deleted? Restore them from a backup, or use another prefix",
            self.least
        );
        Err(Failure::corrupt(missing.as_ref(), &problem))
    }

    /// Returns whether the segment after this one may have been deleted already. Then the log seems
    /// to end here, a put of the next number can succeed, and another stale process may have put
    /// such an object. Segments are deleted only when they are much older than [`STALE_AFTER`], and
    /// the next segment is younger than the moment at which the log ended here.
    pub(crate) fn is_stale(&self, now: &Moment) -> bool {
        let since = self.current_at.and_then(|moment| moment.until(now));
        since.is_none_or(|since| since >= STALE_AFTER)
    }

    /// Returns whether the log had no newer segment at a moment since `duration` before `now`.
    pub(crate) fn was_current_within(&self, now: &Moment, duration: Duration) -> bool {
        let since = self.current_at.and_then(|moment| moment.until(now));
        since.is_some_and(|since| time::duration_millis(since) < time::duration_millis(duration))
    }
}
