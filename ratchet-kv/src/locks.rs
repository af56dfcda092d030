//! Locks with fencing tokens.

use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::Fenced;
use ratchet_core::store::{Acquired, LockInfo, LockPage, LockStore, StoredLock};
use ratchet_core::time::duration_millis;
use ratchet_core::{Fence, InvalidInput, Name, Result, StoreError, StoreErrorKind};

use crate::call::Call;
use crate::engine::{Engine, Order, Transaction};
use crate::keys::{self, Key, Parts, Table};
use crate::store::KvStore;

fn key(name: &Name) -> Key {
    Key::new(Table::Lock).name(name.as_str())
}

/// Decodes a lock.
fn read(value: &[u8]) -> Result<StoredLock, InvalidInput> {
    let text = std::str::from_utf8(value);
    let text = text.map_err(|_| InvalidInput::new("document", "is not UTF-8"))?;
    StoredLock::decode(text)
}

impl<T: Transaction> Call<T> {
    /// Reads a lock. If the row cannot be read, the lock may be held. So this is an error with the
    /// kind `Corrupt`, not `None`.
    async fn lock(&mut self, name: &Name) -> Result<Option<StoredLock>> {
        let value = self.get(key(name)).await?;
        let lock = value.map(|value| read(&value)).transpose();
        lock.map_err(|problem| {
            let text = format!("the stored lock {name} cannot be read: {problem}");
            StoreError::new(StoreErrorKind::Corrupt, self.operation()).with_source(text)
        })
    }

    /// Applies `change` to a lock. Stores the lock if `change` returns `Applied`. Returns `Stale`
    /// if the lock does not exist.
    async fn change_lock(
        &mut self,
        name: &Name,
        change: impl FnOnce(&mut StoredLock, i64) -> Fenced + Send,
    ) -> Result<Fenced> {
        let Some(mut lock) = self.lock(name).await? else {
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
        let lock = call.lock(name).await?;
        let mut lock = lock.unwrap_or_else(|| StoredLock::unused(owner.clone()));
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
        let lock = call.lock(name).await?;
        Ok(lock.map(|lock| lock.info(call.now)))
    }

    async fn list_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Result<Vec<(Name, LockInfo)>> {
        let mut call = self.read("list_locks").await?;
        let now = call.now;
        let mut page = LockPage::new(after, limit);
        while let Some((last, wanted)) = page.wants() {
            let rest = match last.is_empty() {
                true => Key::new(Table::Lock).all(),
                false => {
                    let last = Key::new(Table::Lock).name(&last);
                    Key::new(Table::Lock).from(keys::after(last.bytes()))
                }
            };
            let entries = call.range(rest, Order::Ascending, wanted).await?;
            page.take(entries.iter().map(|(key, value)| {
                let stored = Parts::of(key).name();
                let name = Name::new("lock", stored.unwrap_or_default());
                let lock = name.and_then(|name| Ok((name, read(value)?.info(now))));
                (stored.map(str::to_owned), lock)
            }));
        }
        Ok(page.into_locks())
    }
}
