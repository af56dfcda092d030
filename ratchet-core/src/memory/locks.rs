use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryStore;
use super::tables::{Lock, Tables};
use crate::error::Result;
use crate::id::{Fence, next_in_time};
use crate::model::{Fenced, Guard};
use crate::name::Name;
use crate::store::{Acquired, HeldLock, LockInfo, LockStore, renewed_end};
use crate::time::{duration_millis, millis_between};

/// The expiry of a lock that was released.
const RELEASED: i64 = i64::MIN;

impl Lock {
    fn expired_for(&self, now: i64) -> Option<Duration> {
        let expired = !self.is_held(now) && self.expires_at != RELEASED;
        expired.then(|| millis_between(self.expires_at, now))
    }

    fn is_held(&self, now: i64) -> bool {
        self.expires_at > now
    }

    fn is_held_by(&self, owner: &Name, fence: Fence, now: i64) -> bool {
        self.is_held(now) && self.owner == *owner && self.fence == fence.0
    }

    fn holder(&self, now: i64) -> HeldLock {
        HeldLock {
            owner: self.owner.clone(),
            fence: Fence(self.fence),
            remaining: millis_between(now, self.expires_at),
        }
    }

    fn info(&self, now: i64) -> LockInfo {
        LockInfo {
            fence: Fence(self.fence),
            holder: self.is_held(now).then(|| self.holder(now)),
            holder_gone: false,
            expired_for: self.expired_for(now),
        }
    }
}

impl Tables {
    /// Whether the tenure lasts that a write is made in; without a guard, always.
    pub(super) fn is_tenure(&self, guard: Option<&Guard>, now: i64) -> bool {
        guard.is_none_or(|guard| {
            let lock = self.locks.get(&guard.lock);
            lock.is_some_and(|lock| lock.is_held_by(&guard.owner, guard.fence, now))
        })
    }
}

#[async_trait]
impl LockStore for MemoryStore {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let ttl = duration_millis(ttl);
        self.call("acquire", |tables, now| {
            let lock = tables.locks.entry(name.clone()).or_insert_with(|| Lock {
                owner: owner.clone(),
                fence: 0,
                expires_at: RELEASED,
            });
            if lock.is_held(now) && lock.owner != *owner {
                return Ok(Acquired::Held(lock.holder(now)));
            }
            if !lock.is_held(now) {
                lock.fence = next_in_time(lock.fence, now);
                lock.owner = owner.clone();
            }
            lock.expires_at = renewed_end(lock.expires_at, now, ttl);
            Ok(Acquired::Acquired {
                fence: Fence(lock.fence),
            })
        })
        .await
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        let ttl = duration_millis(ttl);
        self.call("renew", |tables, now| {
            Ok(match tables.locks.get_mut(name) {
                Some(lock) if lock.is_held_by(owner, fence, now) => {
                    lock.expires_at = renewed_end(lock.expires_at, now, ttl);
                    Fenced::Applied
                }
                _ => Fenced::Stale,
            })
        })
        .await
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        self.call("release", |tables, now| {
            Ok(match tables.locks.get_mut(name) {
                Some(lock) if lock.is_held_by(owner, fence, now) => {
                    lock.expires_at = RELEASED;
                    Fenced::Applied
                }
                _ => Fenced::Stale,
            })
        })
        .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        self.call("inspect", |tables, now| {
            Ok(tables.locks.get(name).map(|lock| lock.info(now)))
        })
        .await
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        self.call("list_locks", |tables, now| {
            let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
            let locks = tables.locks.range::<Name, _>((behind, Bound::Unbounded));
            let infos = locks.map(|(name, lock)| (name.clone(), lock.info(now)));
            Ok(infos.take(limit).collect())
        })
        .await
    }
}
