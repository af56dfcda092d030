use serde::{Deserialize, Serialize};

use crate::id::Fence;
use crate::name::Name;

/// The tenure of a lock that a write requires. The write takes effect only while the tenure lasts.
/// The caller is usually a leader, which holds the lock of its role.
///
/// A leader whose process was suspended, or whose network was cut off, may have lost its role
/// without noticing. It still passes the guard of its old term. The store compares the guard with
/// the lock within the write itself, so such a write changes nothing.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// The name of the lock.
    pub lock: Name,
    /// The owner that must hold the lock.
    pub owner: Name,
    /// The fencing token that the lock must have. For a leader, it is the term.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarded<T> {
    /// The write took effect and returned this value.
    Done(T),
    /// The tenure was over. Nothing changed.
    Stale,
}

impl<T> Guarded<T> {
    /// Returns the value of the write. `None` if the guard was stale.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Stale => None,
        }
    }
}
