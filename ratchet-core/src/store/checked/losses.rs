use crate::error::StoreErrorKind;

/// Decides whether a store repeats a call after the connection to the database was lost. The type
/// makes no calls itself.
///
/// The [door](super::Checked) repeats a call after [`Contention`](StoreErrorKind::Contention),
/// because that error means that the call has changed nothing. After a lost connection, this is no
/// longer certain, because the lost try may have taken effect. The door does not know about the
/// loss. So once a call has lost its connection, the store itself repeats the call after
/// `Contention`. When the store gives up, it returns [`Unavailable`](StoreErrorKind::Unavailable)
/// instead of `Contention`, so that the door does not repeat the call.
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
    /// Creates a counter that allows up to `limit` repetitions of a call.
    #[must_use]
    pub const fn at_most(limit: u32) -> Self {
        Self { repeated: 0, limit }
    }

    /// Returns how many times the call was repeated.
    #[must_use]
    pub const fn repeated(&self) -> u32 {
        self.repeated
    }

    /// Counts a failed try, and decides whether the store repeats the call. `is_repeatable` is true
    /// if the connection was lost and the call may safely be made twice.
    ///
    /// # Errors
    /// The kind of the error that the store returns, if the call must not be repeated.
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
