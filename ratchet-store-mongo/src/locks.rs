//! [`LockStore`] on MongoDB, through the client for heartbeats and locks.
//!
//! A lock's document is never deleted, because its fence must never restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::options::ReadConcern;
use ratchet_core::model::Fenced;
use ratchet_core::store::{Acquired, LockInfo, LockPage, LockStore, StoredLock};
use ratchet_core::time::duration_millis;
use ratchet_core::{Fence, InvalidInput, Name, Result};

use crate::error::{Failure, Result as Inner};
use crate::pipelines::{self, LONGEST};
use crate::row;
use crate::store::MongoStore;

/// Value of `expires_at` in the document of a released lock.
const RELEASED: i64 = 0;

#[async_trait]
impl LockStore for MongoStore {
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
                // The first try may have released the lock although its reply was lost.
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
            let found = self.find_lock(name).await?;
            let info = found.as_deref().map(lock_info).transpose()?;
            // A lock with fence 0 was never acquired: a call has inserted the document and will
            // acquire the lock next.
            Ok(info.filter(|info| info.fence.0 > 0))
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

impl MongoStore {
    /// Acquires the lock if it is free, or if this owner already holds it. If the lock has no
    /// document yet, the function inserts a document of a released lock and returns `Contention`,
    /// so that the call is retried. One upsert cannot do both, because the filter of an upsert
    /// cannot contain `$expr`, which compares the times.
    async fn acquire_lock(&self, name: &Name, owner: &Name, ttl: i64) -> Inner<Acquired> {
        let side = self.live();
        let now = self.now(side).await?;
        let takeable = pipelines::takeable_lock(name.as_str(), owner.as_str(), now);
        let take = pipelines::take_lock(owner.as_str(), ttl, now);
        let mut on = side.plain();
        if let Some(lock) = on.change(&side.locks, takeable, take, false).await? {
            return Ok(Acquired::Acquired {
                fence: Fence(row::count(&lock, "fence")?),
            });
        }
        match self.find_lock(name).await? {
            Some(lock) => {
                if let Some(holder) = lock_info(&lock)?.holder {
                    return Ok(Acquired::Held(holder));
                }
            }
            None => {
                let new = doc! {
                    "_id": name.as_str(),
                    "owner": owner.as_str(),
                    "fence": 0_i64,
                    "expires_at": RELEASED,
                };
                let new = RawDocumentBuf::try_from(&new)?;
                match on.insert_many(&side.locks, &[new]).await {
                    Err(failure) if !failure.is_duplicate() => return Err(failure),
                    // This call inserted the lock, or another call inserted it at the same time.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        // Either the document exists now, or the lock became free after the first attempt to change
        // it. In both cases, a retry can acquire the lock.
        Err(Failure::contention(
            "a lock was created or became free during the call",
        ))
    }

    /// Returns one page of the locks that can be read, in order of name. [lock.list]
    async fn page_of_locks(
        &self,
        after: Option<&Name>,
        limit: usize,
    ) -> Inner<Vec<(Name, LockInfo)>> {
        let side = self.live();
        let now = self.now(side).await?;
        let mut page = LockPage::new(after, limit);
        while let Some((behind, count)) = page.wants() {
            let stages = vec![
                // A lock with fence 0 was never acquired: a call has inserted the document and will
                // acquire the lock next.
                doc! { "$match": { "_id": { "$gt": behind }, "fence": { "$gt": 0 } } },
                doc! { "$sort": { "_id": 1 } },
                doc! { "$limit": i64::try_from(count).unwrap_or(i64::MAX) },
                doc! { "$set": { "now": now.expression() } },
            ];
            let mut on = side.plain();
            let rows = on.aggregate(&side.locks, stages, ReadConcern::majority());
            let rows = rows.await?;
            page.take(rows.iter().map(|row| {
                let name = row.get_str("_id").ok().map(str::to_owned);
                (name, listed(row))
            }));
        }
        Ok(page.into_locks())
    }

    /// Returns the document of a lock. The field `now` of the document contains the current time.
    async fn find_lock(&self, name: &Name) -> Inner<Option<RawDocumentBuf>> {
        let side = self.live();
        let now = self.now(side).await?;
        let stages = vec![
            doc! { "$match": { "_id": name.as_str() } },
            doc! { "$set": { "now": now.expression() } },
        ];
        let rows = side
            .plain()
            .aggregate(&side.locks, stages, ReadConcern::majority())
            .await?;
        Ok(rows.into_iter().next())
    }

    /// Returns whether the tenure of this owner with this fence was the last tenure of the lock,
    /// and ended by a release. Returns false if the tenure ended by expiry.
    async fn was_released(&self, name: &Name, owner: &Name, fence: Fence) -> Inner<bool> {
        let found = self.find_lock(name).await?;
        let lock = found.as_deref().map(stored_lock).transpose()?;
        Ok(lock.is_some_and(|lock| lock.was_released_by(owner, fence)))
    }

    async fn move_expiry(
        &self,
        name: &Name,
        owner: &Name,
        fence: Fence,
        ttl: Option<i64>,
    ) -> Inner<Fenced> {
        let side = self.live();
        let now = self.now(side).await?;
        let held = pipelines::held_lock(name.as_str(), owner.as_str(), fence.0, now);
        let expiry = match ttl {
            Some(ttl) => pipelines::renewed_end(ttl, now).into(),
            None => mongodb::bson::Bson::Int64(RELEASED),
        };
        let renew = vec![doc! { "$set": { "expires_at": expiry } }];
        let matched = side.plain().update_one(&side.locks, held, renew).await?;
        Ok(Fenced::when(matched > 0))
    }
}

/// Reads the stored state of a lock from its document.
fn stored_lock(row: &RawDocument) -> Inner<StoredLock> {
    let owner = row::name(row, "owner")?;
    Ok(StoredLock {
        owner: owner.ok_or_else(|| InvalidInput::new("owner", "is missing"))?,
        fence: Fence(row::count(row, "fence")?),
        expires_at: Some(row::int(row, "expires_at")?).filter(|end| *end > RELEASED),
    })
}

/// Reads the public information about a lock from its document. The document must contain the
/// current time in the field `now`.
fn lock_info(row: &RawDocument) -> Inner<LockInfo> {
    Ok(stored_lock(row)?.info(row::int(row, "now")?))
}

/// Reads the name of a lock, and the public information about the lock, from its document. The
/// document must contain the current time in the field `now`.
fn listed(lock: &RawDocument) -> Inner<(Name, LockInfo)> {
    let name = row::name(lock, "_id")?;
    let name = name.ok_or_else(|| InvalidInput::new("name", "is missing"))?;
    Ok((name, lock_info(lock)?))
}
