//! The policies for missed slots and for overlapping runs of recurring jobs.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::time::Timestamp;

/// The maximum number of slots in [`Misfire::CatchUp`].
pub const MAX_CATCH_UP: u32 = 1_000;

/// The policy for missed slots of a recurring job.
///
/// A slot is missed if its time passes while no node is running or the database cannot be reached.
/// The policy applies only if at least two slots are overdue: a single overdue slot always runs,
/// however late. After the missed slots, every policy continues with the first slot in the future.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{Misfire, NewJob, Recurring};
///
/// let report = Recurring::every(Duration::from_secs(3_600))
///     .job(NewJob::new("report", &()))
///     .misfire(Misfire::CatchUp(24));
/// # let _ = report;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Misfire {
    /// No missed slot runs.
    Skip,
    /// Only the oldest missed slot runs.
    #[default]
    FireOnce,
    /// At most this many missed slots run, the oldest first. The number must be from 1 to
    /// [`MAX_CATCH_UP`].
    CatchUp(u32),
}

impl Misfire {
    /// Checks that [`CatchUp`](Self::CatchUp) has from 1 to [`MAX_CATCH_UP`] slots.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `misfire` if the number is outside of this range.
    pub fn validate(self) -> Result<(), InvalidInput> {
        match self {
            Self::CatchUp(0) => Err(InvalidInput::new(
                "misfire",
                "catches up with 0 slots; the minimum is 1",
            )),
            Self::CatchUp(slots) if slots > MAX_CATCH_UP => Err(InvalidInput::new(
                "misfire",
                format!("catches up with {slots} slots; at most {MAX_CATCH_UP} are allowed"),
            )),
            Self::Skip | Self::FireOnce | Self::CatchUp(_) => Ok(()),
        }
    }

    /// Returns the maximum number of slots that run if several are overdue.
    const fn runs(self) -> u32 {
        match self {
            Self::Skip => 0,
            Self::FireOnce => 1,
            Self::CatchUp(slots) => slots,
        }
    }
}

/// The policy for a slot that comes while the job of an earlier slot has not ended.
///
/// ```
/// use std::time::Duration;
/// use ratchet::{NewJob, Overlap, Recurring};
///
/// let sync = Recurring::every(Duration::from_secs(60))
///     .job(NewJob::new("sync", &()))
///     .overlap(Overlap::Skip);
/// # let _ = sync;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The jobs of different slots may run at the same time.
    #[default]
    Allow,
    /// The slot is skipped while a job of an earlier slot is unfinished: running, waiting or
    /// paused. Jobs created under this policy have the unique key `recurring/<name>`, or the unique
    /// key that the [job of the definition](crate::Recurring::job) has. Only an unfinished job with
    /// this key causes a skip, whichever definition or client created that job.
    Skip,
}

/// Returns the overdue slots that run, the oldest first, and whether other overdue slots are
/// skipped.
///
/// `first` is the first overdue slot, and `next_after` returns the next slot of the schedule. The
/// number of calls of `next_after` depends on how many slots run, and not on how many slots were
/// missed.
pub(crate) fn slots_to_fire(
    misfire: Misfire,
    first: Timestamp,
    now: Timestamp,
    next_after: impl Fn(Timestamp) -> Option<Timestamp>,
) -> (Vec<Timestamp>, bool) {
    let overdue_after = |slot: Timestamp| next_after(slot).filter(|next| *next <= now);
    let second = overdue_after(first);
    if second.is_none() {
        return (vec![first], false);
    }
    let mut slots = Vec::new();
    let mut next = Some(first);
    while let Some(slot) = next.filter(|_| (slots.len() as u64) < u64::from(misfire.runs())) {
        slots.push(slot);
        next = overdue_after(slot);
    }
    (slots, next.is_some())
}
