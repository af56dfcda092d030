//! The policies for missed slots and for overlapping runs.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::time::Timestamp;

/// The maximum number of slots for [`Misfire::CatchUp`].
pub const MAX_CATCH_UP: u32 = 1_000;

/// The policy for missed slots: those that passed without being fired, because no node was running
/// or the database could not be reached. It applies if at least two slots are overdue: a single
/// overdue slot always runs, however late. With every policy, the next slot is the first one in the
/// future.
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
    /// Up to this many missed slots run, the oldest first; 1 to [`MAX_CATCH_UP`].
    CatchUp(u32),
}

impl Misfire {
    /// Refuses 0 slots and more than [`MAX_CATCH_UP`].
    ///
    /// # Errors
    /// [`InvalidInput`] naming `misfire`.
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

    /// Returns how many slots run if several are overdue.
    const fn runs(self) -> u32 {
        match self {
            Self::Skip => 0,
            Self::FireOnce => 1,
            Self::CatchUp(slots) => slots,
        }
    }
}

/// Whether the job of a slot may run at the same time as a job of an earlier slot.
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
    /// The jobs may run at the same time.
    #[default]
    Allow,
    /// A slot is skipped while a job of an earlier slot has not ended, whether it runs, waits or is
    /// paused. Only jobs that were made under this policy count, including those of an earlier
    /// definition with the same name: they have the unique key `recurring/<name>`.
    Skip,
}

/// Returns the slots that run, the oldest first, and whether other overdue slots are skipped.
///
/// `first` is the first overdue slot, and `next_after` returns the next slot of the schedule. The
/// function calls `next_after` only a few times more than slots run, however many were missed.
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
