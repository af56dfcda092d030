use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;

use super::MemoryStore;
use super::tables::Tables;
use crate::error::Result;
use crate::id::Fence;
use crate::model::{Fenced, Guard};
use crate::name::Name;
use crate::store::{Acquired, LockInfo, LockStore, StoredLock};
use crate::time::duration_millis;

impl Tables {
    /// Returns whether the owner named in the guard still holds the lock with the guard's fence.
    /// Returns true if there is no guard.
    pub(super) fn is_tenure(&self, guard: Option<&Guard>, now: i64) -> bool {
        guard.is_none_or(|guard| {
            let lock = self.locks.get(&guard.lock);
            lock.is_some_and(|lock| lock.allows(guard, now))
        })
    }
}

#[async_trait]
impl LockStore for MemoryStore {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let ttl = duration_millis(ttl);
        self.call("acquire", |tables, now| {
            let lock = tables.locks.entry(name.clone());
            let lock = lock.or_insert_with(|| StoredLock::unused(owner.clone()));
            Ok(lock.acquire(owner, ttl, now))
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
            let lock = tables.locks.get_mut(name);
            Ok(lock.map_or(Fenced::Stale, |lock| lock.renew(owner, fence, ttl, now)))
        })
        .await
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        self.call("release", |tables, now| {
            let lock = tables.locks.get_mut(name);
            Ok(lock.map_or(Fenced::Stale, |lock| lock.release(owner, fence, now)))
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
