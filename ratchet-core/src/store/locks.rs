use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::Fence;
use crate::model::Fenced;
use crate::name::Name;

/// Named locks that expire, with fencing tokens.
///
/// A store may have a setting, off by default, with which a lock is also free once the database
/// knows that the connection of its holder is gone. The tenure then lasts until another owner takes
/// the lock, with a larger fence: until that, it can be renewed, its guard holds, and
/// [`inspect`](Self::inspect) names its holder and says that it is gone.
#[async_trait]
pub trait LockStore: Debug + Send + Sync {
    /// Takes a lock that is free or expired, or takes it again.
    ///
    /// # Contract
    /// - **[lock.exclusive]** Of concurrent callers with different owners exactly one acquires.
    /// - **[lock.held]** While it is held, others get `Held` with the owner and the time left.
    /// - **[lock.expire]** It is free once `ttl` has passed on the database's clock, and not
    ///   before, from one millisecond to at least 30 days. [`renewed_end`] says when one ends that
    ///   was renewed.
    /// - **[lock.again]** The owner of an unexpired lock acquires it again with the same fence. The
    ///   lock then ends as after a renewal.
    /// - **[lock.fence]** Every other acquisition has a fence strictly larger than all before it,
    ///   across releases and expiries, for ever: [`next_in_time`](crate::next_in_time) of the fence
    ///   before it (0: none) and the database's clock. So it is larger, too, than a fence that a
    ///   failover or a restore has lost, unless the clock went back by more than the time since.
    /// - **[lock.ttl]** No store sees a `ttl` of zero: it is refused.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired>;

    /// Holds the lock for another `ttl` from now.
    ///
    /// # Contract
    /// - **[lock.renew]** Applies only while the lock is unexpired and has this owner and this
    ///   fence; otherwise `Stale` and nothing changes. The lock then ends when [`renewed_end`]
    ///   says.
    ///
    /// # Errors
    /// `Invalid`, or a failure of the store.
    async fn renew(&self, name: &Name, owner: &Name, fence: Fence, ttl: Duration)
    -> Result<Fenced>;

    /// Frees the lock.
    ///
    /// # Contract
    /// - **[lock.release]** Applies only if the lock has this owner and this fence and is
    ///   unexpired; then it is free at once. Otherwise `Stale` and nothing changes.
    ///
    /// # Errors
    /// A failure of the store.
    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced>;

    /// Looks at a lock without touching it.
    ///
    /// # Contract
    /// - **[lock.inspect]** None for a lock that was never acquired; otherwise its last fence, and
    ///   owner and time left while it is held, or how long ago it expired if it was not released.
    ///
    /// # Errors
    /// A failure of the store.
    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>>;

    /// Lists locks without touching them: up to `limit` of those behind the name `after`.
    ///
    /// # Contract
    /// - **[lock.list]** By name (its bytes), each lock that was ever acquired as
    ///   [`inspect`](Self::inspect) shows it. One that cannot be read is left out and takes the
    ///   place of no other ([`LockPage`](super::LockPage)): fewer than `limit` are the last.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0 or above [`MAX_BATCH`](crate::limits::MAX_BATCH), or a failure of
    /// the store.
    async fn list_locks(&self, after: Option<&Name>, limit: usize)
    -> Result<Vec<(Name, LockInfo)>>;
}

/// Returns when a lock ends that its owner renews at `now` for `ttl`: `stored`, its end until then,
/// but not before `now + ttl` and not after `now + 2 * ttl`. All are milliseconds.
///
/// A renewal does not end a lock sooner: a call whose caller gave up waiting may take effect after
/// a later call, with the time at which it began. This holds for calls that are late by less than
/// `ttl`. The upper bound frees a lock in time whose end was stored before the clock stepped back.
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

/// What became of a try to take a lock.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The caller holds it.
    Acquired {
        /// The token of this tenure.
        fence: Fence,
    },
    /// Another owner holds it.
    Held(HeldLock),
}

/// Who holds a lock, and for how long at most.
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
pub struct HeldLock {
    /// The owner.
    pub owner: Name,
    /// The token of its tenure.
    pub fence: Fence,
    /// The time left unless it is renewed.
    pub remaining: Duration,
}

/// A lock as it is stored.
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
    /// The token of the present or last tenure.
    pub fence: Fence,
    /// Its holder; `None` if it is free.
    pub holder: Option<HeldLock>,
    /// Whether the connection of the holder is gone, so that the lock can be acquired before it
    /// expires.
    pub holder_gone: bool,
    /// How long ago it expired; `None` if it is held, or was released.
    pub expired_for: Option<Duration>,
}
