//! The store that applications use. It passes each call to its writing thread or to a reading one.

use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_core::store::{
    ArchiveStore, CallPolicy, Checked, DiagnosticStore, FairStore, JobStore, LockStore, NodeStore,
    PermitStore, QueueStore, RateStore, RecurringStore, SignalStore, Store, StoreInfo,
    TransactionStore, VersionStore, WorkflowStore, check_enqueue,
};
use ratchet_core::{Result, StoreErrorKind, time};
use ratchet_sql::Migration;
use rusqlite::Transaction;
use tokio::sync::oneshot;

use crate::config::{Builder, Config, Location, require_scheme};
use crate::coordinator::SqliteCoordinator;
use crate::enqueue;
use crate::error::{Failure, Result as Inner};
use crate::migrate;
use crate::queue::Urgency;
use crate::readers::Readers;
use crate::request::{Call, Request, Work};
use crate::routes::Routes;
use crate::statements::Connection;
use crate::writer::Writer;

/// A store that keeps its data in tables of a SQLite file.
///
/// Clones share one thread for writes and two threads for reads. All stores that use the same file
/// form one cluster. They may run in several processes, and all must run on the **same host**.
/// Files on network file systems are not supported, because SQLite's locks do not work reliably
/// there.
///
/// The store switches the file to write-ahead logging. The names of all its tables begin with
/// `ratchet_`. An application may keep its own tables in the same file.
///
/// When the last clone is dropped, the threads finish the queued calls and end.
/// [`close`](Store::close) also ends the threads, and waits until they have ended.
///
/// Calls need a Tokio runtime with timers enabled.
///
/// ```no_run
/// use ratchet_store_sqlite::SqliteStore;
///
/// # async fn example() -> Result<(), ratchet_core::StoreError> {
/// let store = SqliteStore::connect("sqlite://jobs.db").await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Inside>);

struct Inside {
    // The coordinator and the readers are dropped before the writer, so that the writer's
    // connection is the last one and can truncate the log.
    coordinator: Arc<SqliteCoordinator>,
    readers: Option<Readers>,
    writer: Writer,
    config: Config,
    /// Full path of the file, as SQLite reports it. Empty for a database in memory.
    path: String,
}

impl SqliteStore {
    /// Opens the database at this URL.
    ///
    /// The URL is `sqlite://jobs.db` for a relative path and `sqlite:///var/lib/jobs.db` for an
    /// absolute path. Paths are percent-decoded. The URL `sqlite::memory:` opens a database in
    /// memory, which is private to the store and lost with it.
    ///
    /// The only setting in a URL is `synchronous`, as in `?synchronous=normal`. Settings of SQLite
    /// and sqlx are accepted if the store behaves that way anyway, such as `mode=rwc`. Other
    /// settings are rejected with an error that says what to do.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet_core::Result<()> {
    /// use ratchet_core::NewJob;
    /// use ratchet_core::model::Detail;
    /// use ratchet_core::store::JobStore;
    /// use ratchet_store_sqlite::SqliteStore;
    ///
    /// let store = SqliteStore::connect("sqlite::memory:").await?;
    /// let enqueued = store.enqueue(&[NewJob::new("greet", "world")]).await?;
    /// assert!(store.get(&[enqueued[0].id()], Detail::Whole).await?[0].is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The same as for [`Builder::connect`]. A URL with another scheme is `Misconfigured` too.
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        require_scheme(url)?;
        Self::builder(url).connect().await
    }

    /// Returns a builder that opens the database at this URL or path.
    pub fn builder(target: impl AsRef<OsStr>) -> Builder {
        Builder::new(target.as_ref())
    }

    /// Returns all migrations that create the tables, in order.
    ///
    /// The scripts of these migrations can be read, or run by hand. If you run them by hand, run
    /// each [`Migration::sql`] in its own transaction, and connect with [`Builder::migrate`] set to
    /// `false`.
    #[must_use]
    pub fn migrations() -> Vec<Migration> {
        migrate::scripts(migrate::STEPS)
    }

    /// Stores jobs inside a transaction of the application, on the application's own connection to
    /// the same file. The jobs exist once the transaction commits. If the transaction rolls back,
    /// no jobs are stored. If the call fails, its changes are undone, and the transaction can
    /// continue.
    ///
    /// The transaction should be `IMMEDIATE`, on a connection with a busy timeout. A deferred
    /// transaction may fail at its first write. This happens without waiting if another connection
    /// has written since the transaction's first read.
    ///
    /// The clauses of [`JobStore::enqueue`] hold. Soon after the commit, the nodes are woken up, as
    /// for jobs of another process.
    ///
    /// The durability of the jobs depends on the `synchronous` setting of the application's
    /// connection. The setting of the store does not apply.
    ///
    /// # Errors
    /// `Invalid` if the input is invalid, `Misconfigured` if the connection belongs to another
    /// database, or a failure of the database.
    pub fn enqueue_in_blocking(
        &self,
        tx: &Transaction<'_>,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        self.enqueue_through(tx, jobs)
    }

    /// Stores jobs on a connection of the application, inside a transaction that the application
    /// has begun.
    pub(crate) fn enqueue_through(
        &self,
        tx: &rusqlite::Connection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        const OPERATION: &str = "enqueue_in";
        check_enqueue(OPERATION, self, jobs)?;
        if self.0.path.is_empty() || tx.path() != Some(&self.0.path) {
            let text = "the transaction belongs to another database than the store's";
            return Err(Failure::new(StoreErrorKind::Misconfigured, text).during(OPERATION));
        }
        self.enqueue_on(tx, jobs)
            .map_err(|failure| failure.during(OPERATION))
    }

    fn enqueue_on(&self, tx: &rusqlite::Connection, jobs: &[NewJob]) -> Inner<Vec<Enqueued>> {
        tx.execute_batch("SAVEPOINT ratchet_enqueue")?;
        let enqueued = self.0.config.clock.now(tx).and_then(|now| {
            let mut routes = Routes::new(self.0.config.own_queues);
            let mut work = Work::new(Connection::new(tx), &mut routes, now);
            let enqueued = enqueue::enqueue(&mut work, jobs)?;
            work.finish()?;
            Ok(enqueued)
        });
        let end = match &enqueued {
            Ok(_) => "RELEASE ratchet_enqueue",
            Err(_) => "ROLLBACK TO ratchet_enqueue; RELEASE ratchet_enqueue",
        };
        match tx.execute_batch(end) {
            Err(error) if enqueued.is_ok() => Err(error.into()),
            // SQLite itself may have rolled back the whole transaction; the error says why.
            _ => enqueued,
        }
    }

    /// Finishes the queued calls, copies the write-ahead log into the database file, and ends the
    /// threads. If the future is dropped, the threads end too.
    async fn end_threads(&self) {
        let _in_any_case = Stopped(&self.0);
        self.0.coordinator.close().await;
        if let Some(readers) = &self.0.readers {
            readers.close().await;
        }
        self.0.writer.close().await;
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        const OPERATION: &str = "connect";
        let place = config.location.to_string();
        let failed = |failure: Failure| failure.about(&place).during(OPERATION);
        let appended = Arc::default();
        let writer = Writer::start(config.clone(), Arc::clone(&appended));
        let (writer, opening) = writer.map_err(failed)?;
        let path = wait(&config, opening).await.map_err(failed)?;
        let readers = match config.location {
            // A private database has only the writer's connection, which also reads.
            Location::Memory => None,
            Location::File(_) => {
                let (readers, openings) = Readers::start(&config).map_err(failed)?;
                for opening in openings {
                    wait(&config, opening).await.map_err(failed)?;
                }
                Some(readers)
            }
        };
        Ok(Self(Arc::new(Inside {
            readers,
            writer,
            coordinator: Arc::new(SqliteCoordinator::new(config.clone(), appended)),
            config,
            path,
        })))
    }

    /// Runs `work` in a transaction of the thread for writes.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        urgency: Urgency,
        work: impl FnOnce(&mut Work<'_>) -> Inner<T> + Send + 'static,
    ) -> Result<T> {
        let (call, answer) = Call::new(self.patience(), work);
        self.0.writer.push(urgency, Box::new(call));
        self.answer(operation, answer).await
    }

    /// Runs `work` as [`write`](Self::write) does, but as an urgent call, and without waiting until
    /// the commit is durable. Use it only for heartbeats and renewals: a power failure that undoes
    /// them also ends all processes that use the file.
    pub(crate) async fn write_volatile<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Work<'_>) -> Inner<T> + Send + 'static,
    ) -> Result<T> {
        let (call, answer) = Call::new(self.patience(), work);
        let call = Box::new(call.volatile());
        self.0.writer.push(Urgency::Urgent, call);
        self.answer(operation, answer).await
    }

    /// Runs `look` and then `work` on the thread for writes. `look` only reads. If `look` returns
    /// an answer, `work` does not run. Otherwise `work` runs in a transaction.
    pub(crate) async fn write_unless<T: Send + 'static>(
        &self,
        operation: &'static str,
        look: impl FnOnce(&mut Work<'_>) -> Inner<Option<T>> + Send + 'static,
        work: impl FnOnce(&mut Work<'_>) -> Inner<T> + Send + 'static,
    ) -> Result<T> {
        let (call, answer) = Call::new(self.patience(), work);
        let call = call.after_look(look);
        self.0.writer.push(Urgency::Normal, Box::new(call));
        self.answer(operation, answer).await
    }

    /// Runs `work` on a thread for reads. `work` must not write.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Work<'_>) -> Inner<T> + Send + 'static,
    ) -> Result<T> {
        let (call, answer) = Call::new(self.patience(), work);
        let request: Box<dyn Request> = Box::new(call);
        match &self.0.readers {
            Some(readers) => readers.push(request),
            None => self.0.writer.push(Urgency::Normal, request),
        }
        self.answer(operation, answer).await
    }

    fn patience(&self) -> tokio::time::Instant {
        time::monotonic() + self.0.config.busy_timeout
    }

    async fn answer<T>(
        &self,
        operation: &'static str,
        answer: oneshot::Receiver<Inner<T>>,
    ) -> Result<T> {
        answered(answer)
            .await
            .map_err(|failure| failure.during(operation))
    }
}

/// Waits for the answer of a thread. Fails with `Timeout` after the deadline.
async fn wait<T>(config: &Config, answer: oneshot::Receiver<Inner<T>>) -> Inner<T> {
    let late = |_| {
        let text = format!("the store did not answer within {:?}", config.deadline);
        Failure::new(StoreErrorKind::Timeout, text)
    };
    let answer = tokio::time::timeout(config.deadline, answered(answer));
    answer.await.map_err(late)?
}

/// Waits for the answer of a thread. Fails with `Unavailable` if the thread has ended.
async fn answered<T>(answer: oneshot::Receiver<Inner<T>>) -> Inner<T> {
    let closed = |_| Failure::new(StoreErrorKind::Unavailable, "the store is closed");
    answer.await.map_err(closed)?
}

/// A guard that ends the threads when it is dropped. So the threads end even if the caller of
/// `close` is cancelled.
struct Stopped<'a>(&'a Inside);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.coordinator.stop();
        if let Some(readers) = &self.0.readers {
            readers.stop();
        }
        self.0.writer.stop();
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Nodes and clients may still hold the coordinator, so its thread is ended here.
        self.coordinator.stop();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("location", &self.0.config.location)
            .field("synchronous", &self.0.config.synchronous)
            .finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: crate::SCHEME,
            version: rusqlite::version().to_owned(),
        }
    }

    fn jobs(&self) -> &dyn JobStore {
        self
    }

    fn queues(&self) -> &dyn QueueStore {
        self
    }

    fn nodes(&self) -> &dyn NodeStore {
        self
    }

    fn locks(&self) -> &dyn LockStore {
        self
    }

    fn versions(&self) -> &dyn VersionStore {
        self
    }

    /// Returns a policy without retries, because a call that fails with `Contention` has already
    /// waited for the other processes that write.
    fn call_policy(&self) -> CallPolicy {
        CallPolicy::within(self.0.config.deadline).retries(0)
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        Some(self)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        Some(self)
    }

    fn fair(&self) -> Option<&dyn FairStore> {
        Some(self)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(self)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        Some(self)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn TransactionStore> {
        Some(self)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        Some(self)
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        Some(Arc::clone(&self.0.coordinator) as _)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.end_threads())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use ratchet_core::model::Detail;

    use super::*;

    async fn in_memory() -> Checked<SqliteStore> {
        SqliteStore::connect("sqlite::memory:").await.unwrap()
    }

    fn jobs() -> Vec<NewJob> {
        vec![NewJob::new("kind", &1)]
    }

    #[tokio::test]
    async fn a_panic_fails_its_call_only_and_leaves_nothing() {
        let store = in_memory().await;
        let lost = jobs();
        let id = lost[0].id();
        let error = store
            .write::<()>("broken", Urgency::Normal, move |work| {
                enqueue::enqueue(work, &lost)?;
                panic!("a bug");
            })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Other);
        assert_eq!(store.get(&[id], Detail::Whole).await.unwrap(), [None]);
        store.enqueue(&jobs()).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_leaves_the_rest_of_its_group_alone() {
        let store = in_memory().await;
        // The first call occupies the thread until the others are queued.
        let (go, gate) = mpsc::channel::<()>();
        let held = store.write("held", Urgency::Normal, move |_| {
            let _ = gate.recv();
            Ok(())
        });
        let broken = store.write::<()>("broken", Urgency::Normal, |_| panic!("a bug"));
        let good = jobs();
        let good = store.enqueue(&good);
        let opened = async {
            tokio::task::yield_now().await;
            drop(go);
        };
        let (held, broken, good, ()) = tokio::join!(held, broken, good, opened);
        assert!(held.is_ok());
        assert!(broken.is_err());
        let stored = store
            .get(&[good.unwrap()[0].id()], Detail::Whole)
            .await
            .unwrap();
        assert!(stored[0].is_some());
    }

    #[tokio::test]
    async fn heartbeats_overtake_jobs() {
        let store = in_memory().await;
        let (go, gate) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let held = store.write("held", Urgency::Normal, move |_| {
            let _ = gate.recv();
            Ok(())
        });
        let say = |word: &'static str| {
            let tell = tell.clone();
            move |_: &mut Work<'_>| {
                let _ = tell.send(word);
                Ok(())
            }
        };
        let job = store.write("job", Urgency::Normal, say("job"));
        let heartbeat = store.write("heartbeat", Urgency::Urgent, say("heartbeat"));
        let opened = async {
            tokio::task::yield_now().await;
            drop(go);
        };
        let _ = tokio::join!(held, job, heartbeat, opened);
        assert_eq!([told.recv(), told.recv()], [Ok("heartbeat"), Ok("job")]);
    }
}
