//! Locks with fencing tokens.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::Fenced;
use ratchet_core::store::{Acquired, LockInfo, LockStore, StoredLock};
use ratchet_core::time::duration_millis;
use ratchet_core::{Fence, Name, Result, StoreError, StoreErrorKind};

use crate::call::{Call, decoded};
use crate::engine::{Engine, Order, Transaction};
use crate::keys::{self, Key, Parts, Table};
use crate::store::KvStore;

fn key(name: &Name) -> Key {
    Key::new(Table::Lock).name(name.as_str())
}

impl<T: Transaction> Call<T> {
    /// Applies `change` to a lock. Stores the lock if `change` returns `Applied`. Returns `Stale`
    /// if the lock does not exist.
    async fn change_lock(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut StoredLock, i64) -> Fenced + Send,
    ) -> Result<Fenced> {
        let Some(mut lock) = self.read(key(name), StoredLock::decode).await? else {
            return Ok(Fenced::Stale);
        };
        let changed = change(&mut lock, self.now);
        if changed == Fenced::Applied {
            self.write(key(name), lock.encode()).await?;
        }
        Ok(changed)
    }
}

#[async_trait]
impl<E: Engine> LockStore for KvStore<E> {
    async fn acquire(&self, name: &Name, owner: &Name, ttl: Duration) -> Result<Acquired> {
        let mut call = self.write("acquire").await?;
        let mut lock = match call.get(key(name)).await? {
            None => StoredLock::unused(owner.clone()),
            // The lock may be held.
            Some(value) => decoded(&value, StoredLock::decode).ok_or_else(|| {
                let error = StoreError::new(StoreErrorKind::Corrupt, "acquire");
                error.with_source("the stored lock cannot be read")
            })?,
        };
        let acquired = lock.acquire(owner, duration_millis(ttl), call.now);
        call.write(key(name), lock.encode()).await?;
        call.commit().await?;
        Ok(acquired)
    }

    async fn renew(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Duration,
    ) -> Result<Fenced> {
        let ttl = duration_millis(ttl);
        let mut call = self.write("renew").await?;
        let renew = |lock: &mut StoredLock, now| lock.renew(owner, fence, ttl, now);
        let renewed = call.change_lock(name, renew).await?;
        call.commit().await?;
        Ok(renewed)
    }

    async fn release(&self, name: &Name, owner: &Name, fence: Fence) -> Result<Fenced> {
        let mut call = self.write("release").await?;
        let release = |lock: &mut StoredLock, now| lock.release(owner, fence, now);
        let released = call.change_lock(name, release).await?;
        call.commit().await?;
        Ok(released)
    }

    async fn inspect(&self, name: &Name) -> Result<Option<LockInfo>> {
        let mut call = self.read("inspect").await?;
        let lock = call.read(key(name), StoredLock::decode).await?;
        Ok(lock.map(|lock| lock.info(call.now)))
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        let mut call = self.read("list_locks").await?;
        let start = after.map(|name| keys::after(key(name).bytes()));
        let mut keys = match start {
            Some(start) => Key::new(Table::Lock).from(start),
            None => Key::new(Table::Lock).all(),
        };
        let mut locks = Vec::new();
        loop {
            let entries = call.page(&mut keys, Order::Ascending).await?;
            let now = call.now;
            let info = |(key, value): &(Vec<u8>, Vec<u8>)| {
                let name = Name::new("lock", Parts::of(key).name()?).ok()?;
                let lock = decoded(value, StoredLock::decode)?;
                Some((name, lock.info(now)))
            };
            locks.extend(entries.iter().filter_map(info));
            if entries.is_empty() || locks.len() >= limit {
                locks.truncate(limit);
                return Ok(locks);
            }
        }
    }
}
