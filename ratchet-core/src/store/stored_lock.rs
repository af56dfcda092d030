use serde::{Deserialize, Serialize};

use super::{Acquired, HeldLock, LockInfo, renewed_end};
use crate::error::InvalidInput;
use crate::id::{Fence, next_in_time};
use crate::model::{Fenced, Guard, document};
use crate::name::Name;
use crate::time::millis_between;

/// The stored state of a lock, with the functions that acquire, renew and release the lock. Times
/// are milliseconds on the database's clock.
///
/// ```
/// use ratchet::{Acquired, Name};
/// use ratchet_core::store::StoredLock;
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let (a, b) = (Name::new("owner", "a")?, Name::new("owner", "b")?);
/// let mut lock = StoredLock::unused(a.clone());
/// assert!(matches!(lock.acquire(&a, 1_000, 0), Acquired::Acquired { .. }));
/// assert!(matches!(lock.acquire(&b, 1_000, 999), Acquired::Held(_)));
/// assert!(matches!(lock.acquire(&b, 1_000, 1_000), Acquired::Acquired { .. }));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLock {
    /// The owner that holds the lock, or the last one that held it.
    pub owner: Name,
    /// The fencing token that this owner got when it acquired the lock.
    pub fence: Fence,
    /// The time at which the lock expires or expired. `None` if the owner released the lock, or if
    /// the lock was never acquired.
    pub expires_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    owner: Name,
    fence: u64,
    expires_at: Option<i64>,
}

impl StoredLock {
    /// Creates a lock that was never acquired: it is free and has the fence 0. `owner` fills the
    /// field until the lock is acquired.
    #[must_use]
    pub const fn unused(owner: Name) -> Self {
        Self {
            owner,
            fence: Fence(0),
            expires_at: None,
        }
    }

    /// Returns whether the lock is held at `now`.
    #[must_use]
    pub fn is_held(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|end| end > now)
    }

    /// Returns whether `owner` holds the lock with this fence at `now`.
    #[must_use]
    pub fn is_held_by(&self, owner: &Name, fence: Fence, now: i64) -> bool {
        self.is_held(now) && self.is_of(owner, fence)
    }

    /// Returns whether `owner` was the last to hold the lock, with this fence, and released it. A
    /// release that is repeated because its answer was lost finds the lock in this state.
    #[must_use]
    pub fn was_released_by(&self, owner: &Name, fence: Fence) -> bool {
        self.expires_at.is_none() && self.is_of(owner, fence)
    }

    fn is_of(&self, owner: &Name, fence: Fence) -> bool {
        self.owner == *owner && self.fence == fence
    }

    /// Acquires the lock for `owner` at `now`, for `ttl` milliseconds. If another owner holds the
    /// lock, the lock does not change.
    #[must_use]
    pub fn acquire(&mut self, owner: &Name, ttl: i64, now: i64) -> Acquired {
        if !self.is_held(now) {
            self.fence = Fence(next_in_time(self.fence.0, now));
            self.owner = owner.clone();
        } else if self.owner != *owner {
            return Acquired::Held(self.holder(now));
        }
        self.expires_at = Some(renewed_end(self.expires_at.unwrap_or(i64::MIN), now, ttl));
        Acquired::Acquired { fence: self.fence }
    }

    /// Extends the lock to the time that [`renewed_end`] returns, if `owner` holds the lock with
    /// this fence. Otherwise the result is `Stale`, and the lock does not change.
    pub fn renew(&mut self, owner: &Name, fence: Fence, ttl: i64, now: i64) -> Fenced {
        let held = self.is_held_by(owner, fence, now);
        if held {
            self.expires_at = self.expires_at.map(|end| renewed_end(end, now, ttl));
        }
        Fenced::when(held)
    }

    /// Releases the lock if `owner` holds it with this fence at `now`. Otherwise the result is
    /// `Stale`, and the lock does not change.
    pub fn release(&mut self, owner: &Name, fence: Fence, now: i64) -> Fenced {
        let held = self.is_held_by(owner, fence, now);
        if held {
            self.expires_at = None;
        }
        Fenced::when(held)
    }

    /// Returns whether the guard's owner holds the lock with the guard's fence at `now`. A guarded
    /// write takes effect only then (`[guard.write]`).
    #[must_use]
    pub fn allows(&self, guard: &Guard, now: i64) -> bool {
        self.is_held_by(&guard.owner, guard.fence, now)
    }

    /// Encodes the lock as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the document cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        document::encode(&Document {
            owner: self.owner.clone(),
            fence: self.fence.0,
            expires_at: self.expires_at,
        })
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] naming `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        let read: Document = document::decode(document)?;
        Ok(Self {
            owner: read.owner,
            fence: Fence(read.fence),
            expires_at: read.expires_at,
        })
    }

    /// Returns the state of the lock at `now`, as [`inspect`](super::LockStore::inspect) shows it.
    /// The result never reports a lost connection of the holder.
    #[must_use]
    pub fn info(&self, now: i64) -> LockInfo {
        let expired = self.expires_at.filter(|end| *end <= now);
        LockInfo {
            fence: self.fence,
            holder: self.is_held(now).then(|| self.holder(now)),
            holder_gone: false,
            expired_for: expired.map(|end| millis_between(end, now)),
        }
    }

    fn holder(&self, now: i64) -> HeldLock {
        HeldLock {
            owner: self.owner.clone(),
            fence: self.fence,
            remaining: millis_between(now, self.expires_at.unwrap_or(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn owner(text: &str) -> Name {
        Name::new("owner", text).unwrap()
    }

    fn lock(expires_at: Option<i64>) -> StoredLock {
        StoredLock {
            owner: owner("a"),
            fence: Fence(7),
            expires_at,
        }
    }

    #[test]
    fn a_lock_is_held_until_it_expires_or_is_released() {
        let seen = |expires_at| {
            let info = lock(expires_at).info(1_000);
            let remaining = info.holder.map(|holder| holder.remaining);
            (remaining, info.expired_for)
        };
        let millis = Duration::from_millis;
        assert_eq!(seen(Some(1_001)), (Some(millis(1)), None));
        assert_eq!(seen(Some(1_000)), (None, Some(millis(0))));
        assert_eq!(seen(Some(400)), (None, Some(millis(600))));
        assert_eq!(seen(None), (None, None));
    }

    #[test]
    fn a_tenure_has_an_owner_a_fence_and_an_end() {
        let held = lock(Some(1_001));
        assert!(held.is_held_by(&owner("a"), Fence(7), 1_000));
        assert!(!held.is_held_by(&owner("a"), Fence(7), 1_001));
        assert!(!held.is_held_by(&owner("a"), Fence(6), 1_000));
        assert!(!held.is_held_by(&owner("b"), Fence(7), 1_000));
    }

    #[test]
    fn a_lock_round_trips() {
        for lock in [lock(None), lock(Some(-7))] {
            assert_eq!(StoredLock::decode(&lock.encode().unwrap()), Ok(lock));
        }
    }

    #[test]
    fn only_the_release_of_the_last_tenure_is_found_again() {
        let released = lock(None);
        assert!(released.was_released_by(&owner("a"), Fence(7)));
        assert!(!released.was_released_by(&owner("a"), Fence(6)));
        assert!(!released.was_released_by(&owner("b"), Fence(7)));
        for expires_at in [0, 2_000] {
            assert!(!lock(Some(expires_at)).was_released_by(&owner("a"), Fence(7)));
        }
    }

    #[test]
    fn a_lock_is_acquired_by_one_owner_at_a_time_each_with_a_larger_fence() {
        let mut lock = StoredLock::unused(owner("a"));
        assert_eq!(
            (lock.info(1_000).holder, lock.info(1_000).expired_for),
            (None, None)
        );
        let Acquired::Acquired { fence } = lock.acquire(&owner("a"), 50, 1_000) else {
            panic!("expected to acquire the free lock");
        };
        assert!(fence.0 > 0);
        let held = lock.clone();
        let Acquired::Held(holder) = lock.acquire(&owner("b"), 50, 1_049) else {
            panic!("expected the lock to be refused to a second owner");
        };
        assert_eq!((holder.owner, holder.fence), (owner("a"), fence));
        assert_eq!(holder.remaining, Duration::from_millis(1));
        assert_eq!(lock, held);
        // The owner acquires the lock again.
        let again = lock.acquire(&owner("a"), 50, 1_049);
        assert_eq!(again, Acquired::Acquired { fence });
        assert_eq!(lock.expires_at, Some(1_099));
        let next = lock.acquire(&owner("b"), 50, 1_099);
        assert!(matches!(next, Acquired::Acquired { fence: next } if next > fence));
        assert_eq!(lock.owner, owner("b"));
    }
}
