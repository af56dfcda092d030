//! Guarded writes: they take effect only while the guard's lock is held.

use mongodb::bson::doc;
use ratchet_core::model::{Guard, Guarded};

use crate::connection::{Side, Tx};
use crate::error::{Failure, Result};
use crate::pipelines;
use crate::store::MongoStore;

/// The transaction of a write that may have a guard. On a server without transactions, a write
/// without a guard uses a plain handle instead of a transaction.
pub(crate) struct GuardedTx<'a> {
    pub(crate) tx: Tx<'a>,
    side: &'a Side,
    guard: Option<&'a Guard>,
}

impl MongoStore {
    /// Begins the transaction of a write that may have a guard. Returns `None` if the guard's
    /// tenure is over: the guard's owner no longer holds the lock.
    ///
    /// This call only reads the lock. [`GuardedTx::finish`] writes to the lock as the last step. So
    /// a process that dies before `finish` does not keep another owner from acquiring the lock.
    /// [guard.write]
    pub(crate) async fn begin_guarded<'a>(
        &self,
        side: &'a Side,
        guard: Option<&'a Guard>,
    ) -> Result<Option<GuardedTx<'a>>> {
        if guard.is_some() {
            self.need_transactions("a guarded write")?;
        }
        let mut tx = self.begin(side).await?;
        if let Some(guard) = guard {
            let now = self.now(side).await?;
            let (name, owner) = (guard.lock.as_str(), guard.owner.as_str());
            let held = pipelines::held_lock(name, owner, guard.fence.0, now);
            let found = tx.find_one(&side.locks, held).await;
            if !matches!(found, Ok(Some(_))) {
                return tx.finish(found.map(|_| None)).await;
            }
        }
        Ok(Some(GuardedTx { tx, side, guard }))
    }
}

impl GuardedTx<'_> {
    /// Commits the write if `done` is `Ok` and the tenure is not over. Otherwise aborts the
    /// transaction.
    ///
    /// The last statement before the commit writes to the document of the lock. If the lock was
    /// renewed or acquired since the transaction began, this statement conflicts and the whole
    /// write is retried. If the lock has expired, nothing takes effect. [guard.write]
    pub(crate) async fn finish<T>(
        mut self,
        store: &MongoStore,
        done: Result<T>,
    ) -> Result<Guarded<T>> {
        let value = match done {
            Ok(value) => value,
            Err(failure) => return self.tx.finish(Err(failure)).await,
        };
        match self.touch(store).await {
            Ok(true) => self.tx.finish(Ok(Guarded::Done(value))).await,
            Ok(false) => {
                let over = Failure::contention("the term of the leader has ended");
                let _ = self.tx.finish(Err::<(), _>(over)).await;
                Ok(Guarded::Stale)
            }
            Err(failure) => self.tx.finish(Err(failure)).await,
        }
    }

    /// Writes to the document of the lock. Returns whether the tenure still lasts, or true if the
    /// write has no guard.
    async fn touch(&mut self, store: &MongoStore) -> Result<bool> {
        let Some(guard) = self.guard else {
            return Ok(true);
        };
        let now = store.now(self.side).await?;
        let (name, owner) = (guard.lock.as_str(), guard.owner.as_str());
        let held = pipelines::held_lock(name, owner, guard.fence.0, now);
        let touch = doc! { "$inc": { "guarded": 1_i64 } };
        Ok(self.tx.update_one(&self.side.locks, held, touch).await? > 0)
    }
}
