use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::Fence;
use crate::model::Fenced;
use crate::name::Name;

/// Named locks that expire. Each acquisition gets a fencing token, the fence.
///
/// A store may have a setting, off by default, that lets another owner acquire a lock when the
/// database finds that the holder's connection is lost. The new owner gets a larger fence. Until
/// another owner acquires the lock, the holder keeps it: the holder can renew the lock, and its
/// guard is valid. During this time, [`inspect`](Self::inspect) returns the holder, and reports
/// that its connection is lost.
#[async_trait]
pub trait LockStore: Debug + Send + Sync {
    /// Acquires a lock that is free or expired, or that the owner already holds.
    ///
    /// # Contract
    /// - **[lock.exclusive]** Of concurrent callers with different owners, exactly one acquires the
    ///   lock.
    /// - **[lock.held]** While an owner holds the lock, other owners get `Held` with the owner and
    ///   the time left.
    /// - **[lock.expire]** The lock is free once `ttl` has passed on the database's clock, and not
    ///   before. This holds for every `ttl` from one millisecond to at least 30 days.
    ///   [`renewed_end`] returns the end of a renewed lock.
    /// - **[lock.again]** If the owner of an unexpired lock acquires it again, it gets the same
    ///   fence. The lock then ends as after a renewal.
    /// - **[lock.fence]** Every other acquisition gets a fence larger than all earlier fences of
    ///   the lock, even across releases and expiries. The fence is
    ///   [`next_in_time`](crate::next_in_time) of the previous fence (0 if there is none) and the
    ///   database's clock. So it is also larger than a fence that a failover or a restore has lost,
    ///   unless the clock went back by more than the time since the lost fence was assigned.
    /// - **[lock.damaged]** If the stored lock cannot be read, the call fails with `Corrupt` and
    ///   changes nothing, because another owner may hold the lock.
    /// - **[lock.ttl]** The door refuses a `ttl` of zero, so a store never receives one.
    ///
    /// # Errors
    /// `Invalid`, `Corrupt` if the stored lock cannot be read, or a failure of the store.
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired>;

    /// Extends the lock to `ttl` from now.
    ///
    /// # Contract
    /// - **[lock.renew]** A renewal applies only while the lock is unexpired and has this owner and
    ///   this fence; otherwise it is `Stale` and nothing changes. The renewed lock ends at the time
    ///   that [`renewed_end`] returns.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn renew(&self, name: &Name, owner: &Name, fence: Fence, ttl: Duration)
    -> Result<Fenced>;

    /// Releases a lock, so that other owners can acquire it.
    ///
    /// # Contract
    /// - **[lock.release]** A release applies only while the lock is unexpired and has this owner
    ///   and this fence; the lock is then free at once. Otherwise the release is `Stale` and
    ///   nothing changes.
    ///
    /// # Errors
    /// A failure of the store.
    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced>;

    /// Reads a lock without changing it.
    ///
    /// # Contract
    /// - **[lock.inspect]** The call returns the last fence of the lock, or `None` if the lock was
    ///   never acquired. While the lock is held, it also returns the owner and the time left. If
    ///   the lock expired and was not released, it also returns how long ago that was.
    ///
    /// # Errors
    /// A failure of the store.
    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>>;

    /// Lists locks without changing them: up to `limit` locks after the name `after`.
    ///
    /// # Contract
    /// - **[lock.list]** The call returns each lock that was ever acquired, as
    ///   [`inspect`](Self::inspect) shows it, in the byte order of the names. A lock that cannot be
    ///   read is left out and does not count towards `limit` ([`LockPage`](super::LockPage)). So if
    ///   a list has fewer than `limit` locks, there are no further locks.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0 or above [`MAX_BATCH`](crate::limits::MAX_BATCH), or a failure of
    /// the store.
    async fn list_locks(&self, after: Option<&Name>, limit: usize)
    -> Result<Vec<(Name, LockInfo)>>;
}

/// Returns the time at which a lock expires after its owner renews it at `now` for `ttl`. The
/// result is `stored`, the previous expiry, limited to the range from `now + ttl` to
/// `now + 2 * ttl`. All values are in milliseconds.
///
/// Within this range, a renewal never makes the expiry earlier. This matters if a renewal is
/// delayed and takes effect after a renewal with a later `now`: the delayed renewal does not
/// shorten the lock, provided that it is less than `ttl` late.
///
/// The upper limit is for a clock that stepped back: without the limit, a lock whose expiry was
/// stored before the step would stay held for too long.
///
/// # Examples
/// ```
/// use ratchet_core::store::renewed_end;
///
/// assert_eq!(renewed_end(5_000, 1_000, 9_000), 10_000);
/// assert_eq!(renewed_end(12_000, 1_000, 9_000), 12_000);
/// assert_eq!(renewed_end(3_600_000, 1_000, 9_000), 19_000);
/// ```
#[must_use]
pub fn renewed_end(stored: i64, now: i64, ttl: i64) -> i64 {
    let soonest = now.saturating_add(ttl);
    stored.clamp(soonest, soonest.saturating_add(ttl))
}

/// The result of an attempt to acquire a lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use ratchet::{Acquired, Name};
///
/// let store = ratchet::connect("memory:").await?;
/// let (lock, owner) = (Name::new("lock", "import")?, Name::new("owner", "web-1")?);
/// let acquired = store.locks().acquire(&lock, &owner, Duration::from_secs(30)).await?;
/// assert!(matches!(acquired, Acquired::Acquired { .. }));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acquired {
    /// The caller holds the lock.
    Acquired {
        /// The fencing token with which the caller holds the lock.
        fence: Fence,
    },
    /// Another owner holds the lock.
    Held(HeldLock),
}

/// The holder of a lock, and the time until the lock expires.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for (name, lock) in client.locks().await? {
///     match lock.holder {
///         Some(held) => println!("{name}: {} for {:?}", held.owner, held.remaining),
///         None => println!("{name}: free, last fence {}", lock.fence.0),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// The owner that holds the lock.
    pub owner: Name,
    /// The fencing token with which the owner holds the lock.
    pub fence: Fence,
    /// The time until the lock expires, unless the holder renews it.
    pub remaining: Duration,
}

/// The state of a lock, as [`LockStore::inspect`] returns it.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// for (name, lock) in client.locks().await? {
///     match lock.holder {
///         Some(held) => println!("{name}: {} for {:?}", held.owner, held.remaining),
///         None => println!("{name}: free, last fence {}", lock.fence.0),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The fencing token of the current holder, or of the last one if the lock is free.
    pub fence: Fence,
    /// The holder of the lock; `None` if it is free.
    pub holder: Option<HeldLock>,
    /// Whether the connection of the holder is lost. Another owner can then acquire the lock before
    /// it expires.
    pub holder_gone: bool,
    /// Time since the lock expired. `None` if the lock is held or was released.
    pub expired_for: Option<Duration>,
}
