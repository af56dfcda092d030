use crate::id::Fence;
use crate::name::Name;

/// The tenure in which a leader makes a write. The write takes effect only while that tenure lasts.
///
/// A leader that was suspended or cut off may have lost its role without noticing. It still has the
/// guard of its own term. The store compares the guard with the lock in the write itself, so such a
/// write changes nothing.
///
/// ```
/// # async fn example(leadership: ratchet::Leadership) {
/// let mut watch = leadership.watch();
/// while let Some(term) = watch.changed().await {
///     println!("leads in term {}", term.0);
///     if let Some(guard) = leadership.guard() {
///         println!("writes are guarded by {}", guard.lock);
///     }
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The name of the lock.
    pub lock: Name,
    /// The owner that must hold the lock.
    pub owner: Name,
    /// The fence that the lock must have. It is the term of the leader.
    pub fence: Fence,
}

/// The outcome of a write with a [`Guard`].
///
/// ```
/// use ratchet::Guarded;
///
/// assert_eq!(Guarded::Done(7).done(), Some(7));
/// assert_eq!(Guarded::<u64>::Stale.done(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded<T> {
    /// The write took effect.
    Done(T),
    /// The tenure was over; nothing changed.
    Stale,
}

impl<T> Guarded<T> {
    /// Returns what the write returned; `None` if it was stale.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Stale => None,
        }
    }
}
