//! Writes that take effect only within a tenure.

use mongodb::bson::doc;
use ratchet_core::model::{Guard, Guarded};

use crate::connection::{Side, Tx};
use crate::error::{Failure, Result};
use crate::pipelines;
use crate::store::MongoStore;

/// The transaction of a guarded write; calls without a transaction if there is no guard and the
/// server has none.
pub(crate) struct GuardedTx<'a> {
    pub(crate) tx: Tx<'a>,
    side: &'a Side,
    guard: Option<&'a Guard>,
}

impl MongoStore {
    /// Begins a write with this guard, if there is one; returns `None` if its tenure is over.
    ///
    /// This only reads the lock. [`GuardedTx::finish`] writes it last: a process that dies in
    /// between holds nothing that would keep another from taking the lock over. [guard.write]
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
    /// Ends the write: commits if it succeeded and the tenure still holds.
    ///
    /// The last statement changes the lock as the transaction saw it at its begin. If another owner
    /// has taken the lock over since, or it was renewed, that is a conflict and the whole write is
    /// retried; if it has expired, nothing takes effect. [guard.write]
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
                let over = Failure::contention("the tenure is over");
                let _ = self.tx.finish(Err::<(), _>(over)).await;
                Ok(Guarded::Stale)
            }
            Err(failure) => self.tx.finish(Err(failure)).await,
        }
    }

    /// Returns whether the tenure still holds, or there is no guard.
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
