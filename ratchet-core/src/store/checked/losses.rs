use crate::error::StoreErrorKind;

/// Decides whether a store repeats a call whose connection it lost. Pure.
///
/// The [door](super::Checked) repeats a call after
/// [`Contention`](StoreErrorKind::Contention), which has changed nothing. It cannot do so once a
/// connection was lost, because the lost try may have had its effect and only the store knows that
/// there was one. So from the first loss on contention is repeated here, too, and the last one is
/// returned as [`Unavailable`](StoreErrorKind::Unavailable).
///
/// ```
/// use ratchet_core::StoreErrorKind::{Contention, Unavailable};
/// use ratchet_core::store::LossRepeats;
///
/// let mut repeats = LossRepeats::at_most(2);
/// assert_eq!(repeats.failed(Contention, false), Err(Contention)); // for the door to repeat
/// assert_eq!(repeats.failed(Unavailable, true), Ok(()));
/// assert_eq!(repeats.failed(Contention, false), Ok(()));
/// assert_eq!(repeats.failed(Contention, false), Err(Unavailable));
/// ```
#[derive(Debug)]
pub struct LossRepeats {
    repeated: u32,
    limit: u32,
}

impl LossRepeats {
    /// Allows this many repetitions.
    #[must_use]
    pub const fn at_most(limit: u32) -> Self {
        Self { repeated: 0, limit }
    }

    /// Returns how many repetitions there were.
    #[must_use]
    pub const fn repeated(&self) -> u32 {
        self.repeated
    }

    /// Counts a failed try, and allows another one or refuses it. `is_repeatable`: the connection
    /// was lost, and the call may be made twice.
    ///
    /// # Errors
    /// The kind of error to return, if the call is not to be repeated.
    pub fn failed(
        &mut self,
        kind: StoreErrorKind,
        is_repeatable: bool,
    ) -> Result<(), StoreErrorKind> {
        let contends = self.repeated > 0 && kind == StoreErrorKind::Contention;
        if (is_repeatable || contends) && self.repeated < self.limit {
            self.repeated += 1;
            return Ok(());
        }
        Err(match contends {
            true => StoreErrorKind::Unavailable,
            false => kind,
        })
    }
}
