use super::Client;
use crate::cluster::Wakeup;
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::model::{Enqueued, PutOutcome, PutRecurring, Recurring, RecurringPage, RecurringRecord};
use crate::name::Name;
use crate::store::{Changed, JobFeatures, RecurringStore, Store};

impl Client {
    /// Returns a client for the recurring definitions.
    #[must_use]
    pub fn recurring(&self) -> RecurringClient {
        RecurringClient(self.clone())
    }
}

/// Stores and manages recurring definitions. Cheap to clone.
///
/// On a store without recurring definitions, every call fails with `Misconfigured`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// use std::sync::Arc;
/// use ratchet::{MemoryStore, NewJob, Ratchet, Recurring};
///
/// let client = Ratchet::client(Arc::new(MemoryStore::new()));
/// let recurring = client.recurring();
/// let report = NewJob::new("report", &());
/// recurring.put(Recurring::cron("0 6 * * mon-fri").job(report).named("report")).await?;
/// recurring.trigger("report").await?;
/// recurring.pause("report").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RecurringClient(Client);

impl RecurringClient {
    /// Stores a definition under its name, and replaces an existing definition with that name. The
    /// change takes effect at once. A paused definition stays paused.
    ///
    /// If the builder of a node declares a definition with the same name, the declared definition
    /// replaces the stored one at each start of the node.
    ///
    /// # Errors
    /// `Invalid`, naming what is wrong with the definition, and then nothing is stored; or a
    /// failure of the store, after which the call can be repeated.
    pub async fn put(&self, recurring: Recurring) -> Result<PutOutcome> {
        let definition = recurring
            .check()
            .map_err(|problem| StoreError::from(problem).during("put"))?;
        let outcome = self.put_quietly(&PutRecurring::new(definition)).await?;
        if outcome != PutOutcome::Unchanged {
            self.slots_changed().await;
        }
        Ok(outcome)
    }

    /// Stores a definition without waking any node. The caller must then call
    /// [`slots_changed`](Self::slots_changed).
    pub(crate) async fn put_quietly(&self, put: &PutRecurring) -> Result<PutOutcome> {
        let calls = &self.0.0.calls;
        let features = JobFeatures::of(&**calls.store());
        features
            .check(put.definition.job())
            .map_err(|problem| StoreError::from(problem).during("put"))?;
        let put = calls.call("put", |store| async {
            recurring(store, "put")?.put(put).await
        });
        put.await
    }

    /// Reads a definition.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn get(&self, name: &str) -> Result<Option<RecurringRecord>> {
        let name = Name::new("name", name)?;
        let calls = &self.0.0.calls;
        calls
            .call("find", |store| async {
                recurring(store, "find")?.find(&name).await
            })
            .await
    }

    /// Reads one page of the definitions, ordered by name. If `after` is given, the page contains
    /// only definitions whose names come after it.
    ///
    /// # Errors
    /// `Invalid` for a limit of 0, or a failure of the store.
    pub async fn list(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        let calls = &self.0.0.calls;
        calls
            .call("definitions", |store| async {
                recurring(store, "definitions")?
                    .definitions(after, limit)
                    .await
            })
            .await
    }

    /// Pauses a definition: no more slots fire until it is resumed. Existing jobs are not affected.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn pause(&self, name: &str) -> Result<Changed> {
        self.set_paused(name, true).await
    }

    /// Resumes a definition, which continues with its next slot in the future. The slots that fell
    /// into the pause are skipped.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn resume(&self, name: &str) -> Result<Changed> {
        let resumed = self.set_paused(name, false).await?;
        if resumed == Changed::Changed {
            self.slots_changed().await;
        }
        Ok(resumed)
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<Changed> {
        const OPERATION: &str = "set_paused";
        let name = Name::new("name", name)?;
        let calls = &self.0.0.calls;
        calls
            .call(OPERATION, |store| async {
                recurring(store, OPERATION)?.set_paused(&name, paused).await
            })
            .await
    }

    /// Enqueues a job of the definition now, even if the definition is paused. Its slots are not
    /// affected. Returns `None` if there is no such definition. With
    /// [`Overlap::Skip`](crate::Overlap::Skip) the answer is `Duplicate` while another job of the
    /// definition has not ended.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or as for [`Client::enqueue`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the job may or may not have been enqueued.
    pub async fn trigger(&self, name: &str) -> Result<Option<Enqueued>> {
        match self.get(name).await? {
            Some(record) => self.0.enqueue(record.job_now()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Deletes a definition. Its jobs stay.
    ///
    /// # Errors
    /// `Invalid` for a bad name, or a failure of the store.
    pub async fn delete(&self, name: &str) -> Result<Changed> {
        let name = Name::new("name", name)?;
        let calls = &self.0.0.calls;
        calls
            .call("delete", |store| async {
                recurring(store, "delete")?.delete(&name).await
            })
            .await
    }

    /// Wakes the nodes, so that they read the time of the next slot again.
    pub(crate) async fn slots_changed(&self) {
        if let Some(own) = &self.0.0.node {
            own.wake_queue.wake_recurring();
        }
        self.0.wake(Wakeup::any()).await;
    }
}

/// Returns the store's interface for recurring definitions. Fails if the store has none.
pub(crate) fn recurring<'a>(
    store: &'a dyn Store,
    operation: &'static str,
) -> Result<&'a dyn RecurringStore> {
    store.recurring().ok_or_else(|| {
        StoreError::new(StoreErrorKind::Misconfigured, operation)
            .with_source("the store does not support recurring definitions")
    })
}
