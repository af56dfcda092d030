use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
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

    pub(super) fn acquire(
        &mut self,
        name: &Name,
        owner: &Name,
        ttl: Duration,
        now: i64,
    ) -> Acquired {
        let lock = self.locks.entry(name.clone());
        let lock = lock.or_insert_with(|| StoredLock::unused(owner.clone()));
        lock.acquire(owner, duration_millis(ttl), now)
    }

    pub(super) fn renew(
        &mut self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
        now: i64,
    ) -> Fenced {
        let ttl = duration_millis(ttl);
        let lock = self.locks.get_mut(name);
        lock.map_or(Fenced::Stale, |lock| lock.renew(owner, fence, ttl, now))
    }

    pub(super) fn release(&mut self, name: &Name, owner: &Name, fence: Fence, now: i64) -> Fenced {
        let lock = self.locks.get_mut(name);
        lock.map_or(Fenced::Stale, |lock| lock.release(owner, fence, now))
    }
}

#[async_trait]
impl LockStore for MemoryStore {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        self.write(Command::Acquire {
            name: name.clone(),
            owner: owner.clone(),
            ttl,
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
        self.write(Command::Renew {
            name: name.clone(),
            owner: owner.clone(),
            fence,
            ttl,
        })
        .await
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        self.write(Command::Release {
            name: name.clone(),
            owner: owner.clone(),
            fence,
        })
        .await
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        self.read("inspect", |tables, now| {
            tables.locks.get(name).map(|lock| lock.info(now))
        })
        .await
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        self.read("list_locks", |tables, now| {
            let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
            let locks = tables.locks.range::<Name, _>((behind, Bound::Unbounded));
            let infos = locks.map(|(name, lock)| (name.clone(), lock.info(now)));
            infos.take(limit).collect()
        })
        .await
    }
}
