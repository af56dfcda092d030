//! [`LockStore`] on SQL. Most of its calls use the connection for heartbeats and locks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{Fenced, Guard};
use ratchet_core::store::{Acquired, HeldLock, LockInfo, LockPage, LockStore, StoredLock};
use ratchet_core::time::{duration_millis, millis_between};
use ratchet_core::{Fence, InvalidInput, Name, Result, StoreErrorKind};

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result as Inner};
use crate::row;
use crate::store::SqlStore;

/// Maximum TTL of a lock, in milliseconds. Longer TTLs are shortened to this value. The database
/// adds twice the TTL to a time, and the sum must not overflow.
const LONGEST: i64 = i64::MAX / 4;

/// Expiry time that the statement `move_expiry` stores for a released lock.
const RELEASED: i64 = 0;

#[async_trait]
impl<D: Dialect> LockStore for SqlStore<D> {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let ttl = duration_millis(ttl).min(LONGEST);
        self.call("acquire", || self.acquire_lock(name, owner, ttl))
            .await
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        let ttl = duration_millis(ttl).min(LONGEST);
        self.call("renew", || self.move_expiry(name, owner, fence, Some(ttl)))
            .await
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        let repeated = AtomicBool::new(false);
        self.call("release", || async {
            let repeated = repeated.swap(true, Ordering::Relaxed);
            match self.move_expiry(name, owner, fence, None).await? {
                // The first call may have released the lock before its response was lost.
                Fenced::Stale if repeated => {
                    Ok(Fenced::when(self.was_released(name, owner, fence).await?))
                }
                done => Ok(done),
            }
        })
        .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        self.call("inspect", || async {
            let find = self.sql().find_lock.query().bind(name.as_str());
            let rows = self.live_for_lock().await?.rows(find).await?;
            rows.first().map(lock_info).transpose()
        })
        .await
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        self.call("list_locks", || self.page_of_locks(after, limit))
            .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn acquire_lock(&self, name: &Name, owner: &Name, ttl: i64) -> Inner<Acquired> {
        let mut lease = self.live_for_lock().await?;
        let acquire = self
            .sql()
            .acquire_lock
            .query()
            .bind(name.as_str())
            .bind(owner.as_str())
            .bind(ttl);
        let acquire = lease.bind_session(acquire, true);
        let rows = lease.rows(acquire).await?;
        let Some(row) = rows.first() else {
            // The statement returned no row: another owner's acquisition was committed only after
            // the statement began, so the statement could neither acquire the lock nor read its
            // owner.
            return Err(Failure::new(
                StoreErrorKind::Contention,
                "another owner acquired the lock during the call",
            ));
        };
        let fence = Fence(row::seq(row, 0)?);
        Ok(match row::name(row, 1, "owner")? {
            None => Acquired::Acquired { fence },
            Some(owner) => Acquired::Held(HeldLock {
                owner,
                fence,
                remaining: millis_between(0, row.try_get(2)?),
            }),
        })
    }

    /// Begins the transaction of a guarded write. Returns `None` if the guard's owner no longer
    /// holds the lock that the guard names. Otherwise, no other owner can acquire the lock before
    /// the transaction ends. [guard.write]
    pub(crate) async fn begin_guarded(
        &self,
        mut lease: D::Lease,
        guard: Option<&Guard>,
    ) -> Inner<Option<D::Lease>> {
        lease.begin().await?;
        match self.is_tenure(&mut lease, guard).await {
            Ok(true) => Ok(Some(lease)),
            over => lease.end(over.map(|_| None)).await,
        }
    }

    /// Returns whether the guard's owner still holds the lock that the guard names. Returns `true`
    /// if there is no guard.
    async fn is_tenure(&self, lease: &mut D::Lease, guard: Option<&Guard>) -> Inner<bool> {
        let Some(guard) = guard else {
            return Ok(true);
        };
        let Ok(fence) = i64::try_from(guard.fence.0) else {
            return Ok(false);
        };
        let look = self
            .sql()
            .is_tenure
            .query()
            .bind(guard.lock.as_str())
            .bind(guard.owner.as_str())
            .bind(fence);
        Ok(!lease.rows(look).await?.is_empty())
    }

    async fn page_of_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Inner<Vec<(Name, LockInfo)>> {
        // Uses a connection for jobs instead of the connection for heartbeats and locks. A caller
        // may drop this call before it ends, and this closes the connection that the call uses.
        let mut lease = self.lease().await?;
        let mut page = LockPage::new(after, limit);
        while let Some((behind, count)) = page.wants() {
            let list = |after: &str, count| {
                let list = self.sql().list_locks.query();
                list.bind(after).bind(count)
            };
            let rows = self.named(&mut lease, list, 5, &behind, count).await?;
            page.take(rows.iter().map(|row| (row.try_get(5).ok(), listed(row))));
        }
        Ok(page.into_locks())
    }

    /// Returns whether the owner has released the lock, and no owner has acquired the lock since
    /// then. Returns `false` if the lock expired instead.
    async fn was_released(&self, name: &Name, owner: &Name, fence: Fence) -> Inner<bool> {
        let find = self.sql().find_lock.query().bind(name.as_str());
        let rows = self.live_for_lock().await?.rows(find).await?;
        let lock = rows.first().map(stored_lock).transpose()?;
        Ok(lock.is_some_and(|lock| lock.was_released_by(owner, fence)))
    }

    async fn move_expiry(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Option<i64>,
    ) -> Inner<Fenced> {
        let Ok(fence) = i64::try_from(fence.0) else {
            return Ok(Fenced::Stale);
        };
        let mut lease = self.live_for_lock().await?;
        let renew = self
            .sql()
            .move_expiry
            .query()
            .bind(name.as_str())
            .bind(owner.as_str())
            .bind(fence)
            .bind(ttl);
        // A renewed lock depends on this session. A released lock depends on no session.
        let renew = lease.bind_session(renew, ttl.is_some());
        let moved = lease.execute(renew).await?;
        Ok(Fenced::when(moved > 0))
    }
}

/// Decodes a lock from a row of the statement `find_lock` or `list_locks`.
fn stored_lock(row: &impl Row) -> Inner<StoredLock> {
    let owner = row::name(row, 0, "owner")?;
    Ok(StoredLock {
        owner: owner.ok_or_else(|| InvalidInput::new("owner", "is missing"))?,
        fence: Fence(row::seq(row, 1)?),
        expires_at: Some(row.try_get(2)?).filter(|end| *end > RELEASED),
    })
}

/// Decodes the public information about a lock from a row of the statement `find_lock` or
/// `list_locks`.
fn lock_info(row: &impl Row) -> Inner<LockInfo> {
    let mut info = stored_lock(row)?.info(row.try_get(3)?);
    info.holder_gone = info.holder.is_some() && row.try_get(4)?;
    Ok(info)
}

/// Decodes the name of a lock and the public information about the lock from a row of the statement
/// `list_locks`.
fn listed(row: &impl Row) -> Inner<(Name, LockInfo)> {
    let name = row::name(row, 5, "name")?;
    let name = name.ok_or_else(|| InvalidInput::new("name", "is missing"))?;
    Ok((name, lock_info(row)?))
}
