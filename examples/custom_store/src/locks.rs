//! Locks with fencing tokens, and versions.

use std::ops::Bound;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{Fenced, Guard, Guarded};
use ratchet_core::store::{Acquired, LockInfo, LockStore, StoredLock, VersionStore, renewed_end};
use ratchet_core::time::duration_millis;
use ratchet_core::{Fence, Name, Result, next_in_time};

use crate::store::MapStore;

impl MapStore {
    /// Applies `change` to a lock if the given owner holds the lock with the given fence. Otherwise
    /// changes nothing and returns [`Fenced::Stale`].
    fn change_held(
        &self,
        (name, owner, fence): (&Name, &Name, Fence),
        change: impl FnOnce(&mut StoredLock, i64),
    ) -> Fenced {
        self.transaction(|tables, now| {
            let lock = tables.locks.get_mut(name);
            match lock.filter(|lock| lock.is_held_by(owner, fence, now)) {
                Some(lock) => {
                    change(lock, now);
                    Fenced::Applied
                }
                None => Fenced::Stale,
            }
        })
    }
}

#[async_trait]
impl LockStore for MapStore {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let ttl = duration_millis(ttl);
        Ok(self.transaction(|tables, now| {
            let lock = tables.locks.entry(name.clone());
            let lock = lock.or_insert_with(|| StoredLock::unused(owner.clone()));
            lock.acquire(owner, ttl, now)
        }))
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        let ttl = duration_millis(ttl);
        Ok(self.change_held((name, owner, fence), |lock, now| {
            lock.expires_at = lock.expires_at.map(|end| renewed_end(end, now, ttl));
        }))
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        Ok(self.change_held((name, owner, fence), |lock, _| lock.expires_at = None))
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        Ok(self.transaction(|tables, now| tables.locks.get(name).map(|lock| lock.info(now))))
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        Ok(self.transaction(|tables, now| {
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            let locks = tables.locks.range::<Name, _>((start, Bound::Unbounded));
            let infos = locks.map(|(name, lock)| (name.clone(), lock.info(now)));
            infos.take(limit).collect()
        }))
    }
}

#[async_trait]
impl VersionStore for MapStore {
    async fn bump(&self, namespace: &Name, guard: Option<&Guard>) -> Result<Guarded<u64>> {
        Ok(self.transaction(|tables, now| {
            if !tables.allows(guard, now) {
                return Guarded::Stale;
            }
            let version = tables.versions.entry(namespace.clone()).or_default();
            *version = next_in_time(*version, now);
            Guarded::Done(*version)
        }))
    }

    async fn versions(&self, namespaces: &[Name]) -> Result<Vec<u64>> {
        Ok(self.transaction(|tables, _| {
            let version = |name: &Name| tables.versions.get(name).copied().unwrap_or(0);
            namespaces.iter().map(version).collect()
        }))
    }
}
