//! What becomes of slots that were missed.

use serde::{Deserialize, Serialize};

use crate::error::InvalidInput;
use crate::time::Timestamp;

/// The most slots that [`Misfire::CatchUp`] may make up for.
pub const MAX_CATCH_UP: u32 = 1_000;

/// The policy for slots that passed and were not fired, because no node ran or the database was
/// away. It applies from two overdue slots on: a single one always runs, however late. Whatever
/// the policy, the next slot is the first one in the future.
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
    /// None of them run.
    Skip,
    /// The oldest runs.
    #[default]
    FireOnce,
    /// This many run, the oldest first; 1 to [`MAX_CATCH_UP`].
    CatchUp(u32),
}

impl Misfire {
    /// Refuses a number of slots that makes no sense.
    ///
    /// # Errors
    /// [`InvalidInput`] naming `misfire`.
    pub fn validate(self) -> Result<(), InvalidInput> {
        match self {
            Self::CatchUp(0) => Err(InvalidInput::new("misfire", "catches up with 0 slots")),
            Self::CatchUp(slots) if slots > MAX_CATCH_UP => Err(InvalidInput::new(
                "misfire",
                format!("catches up with {slots} slots, {MAX_CATCH_UP} are allowed"),
            )),
            Self::Skip | Self::FireOnce | Self::CatchUp(_) => Ok(()),
        }
    }

    /// How many of several overdue slots run.
    const fn runs(self) -> u32 {
        match self {
            Self::Skip => 0,
            Self::FireOnce => 1,
            Self::CatchUp(slots) => slots,
        }
    }
}

/// Whether the job of a slot may run beside one of an earlier slot.
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
    /// It may.
    #[default]
    Allow,
    /// A slot is skipped while a job of an earlier one has not ended, be it running, waiting, or
    /// set aside. Only jobs that were made under this policy count, also those of an earlier
    /// definition of the same name: they have the unique key `recurring/<name>`.
    Skip,
}

/// The slots to make jobs for, the oldest first, and whether others were missed for good.
///
/// `first` is the first overdue slot, `next_after` the schedule. Only as many slots are looked at
/// as run, however many were missed.
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
