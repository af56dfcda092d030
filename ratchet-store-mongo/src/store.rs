//! The store that applications use: its connections, and retries after a lost connection.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mongodb::Database;
use ratchet_core::claiming::Lookahead;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::{
    ArchiveStore, CallPolicy, Checked, ContentionBackoff, DiagnosticStore, JobStore, LockStore,
    LossRepeats, NodeStore, PermitStore, QueueStore, RateStore, RecurringStore, SignalStore, Store,
    StoreInfo, TransactionStore, VersionStore, WorkflowStore,
};
use ratchet_core::{Result, StoreErrorKind, time};
use tokio::sync::{Mutex, MutexGuard};

use crate::clients::Clients;
use crate::clock::{Clock, Now};
use crate::config::{Builder, Config};
use crate::connection::{Side, Tx};
use crate::coordinator::MongoCoordinator;
use crate::error::{BAD_VALUE, Failure, Loss, Result as Inner};
use crate::migrate::Migration;
use crate::open;
use crate::routes::Routes;

/// Ratchet's collections in a MongoDB database.
///
/// Clones share the connections. All stores on the same collections form a cluster, in any number
/// of processes and hosts.
///
/// Calls need a Tokio runtime with timers and I/O enabled.
///
/// ```no_run
/// use ratchet_store_mongo::MongoStore;
///
/// # async fn example() -> Result<(), ratchet_core::StoreError> {
/// let store = MongoStore::connect("mongodb://127.0.0.1/app?replicaSet=rs0").await?;
/// # drop(store);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MongoStore(Arc<Inside>);

struct Inside {
    /// A host to which the driver connects without TLS.
    plaintext_host: Option<String>,
    clients: Arc<Clients>,
    clock: Clock,
    routes: Routes,
    lookahead: Lookahead,
    server: Server,
    deadline: Duration,
    wakeups: bool,
    closed: AtomicBool,
    coordinator: OnceLock<Option<Arc<MongoCoordinator>>>,
    /// Held by a settlement that conflicted in a batch or is expected to, so that such settlements
    /// run one at a time.
    turn: Mutex<()>,
    /// Whether other jobs or batches waited for most jobs of the last settlement.
    follows: AtomicBool,
}

/// The connected server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    /// Whether the server supports transactions and change streams.
    pub(crate) transactions: bool,
}

/// How often a call is retried after contention. The number is large because transactions of
/// MongoDB fail on a conflict instead of waiting; usually the deadline ends the retries.
const RETRIES: u32 = 1_000;
/// How often a call is repeated after a server or a connection was lost.
const REPEATS: u32 = 5;

impl MongoStore {
    /// Connects to the database of a URL, `mongodb://user:password@host:27017/database` or
    /// `mongodb+srv://…`, and creates missing collections and indexes. The options of the URL are
    /// the driver's: `replicaSet`, `authSource`, `tls`, …
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Connects through a database handle of the application, and uses its client for everything,
    /// including heartbeats and locks. The handle's read and write concerns are ignored; each call
    /// sets its own.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub async fn from_database(database: Database) -> Result<Checked<Self>> {
        Self::database_builder(database).connect().await
    }

    /// Returns a builder for the database of a URL.
    pub fn builder(url: &str) -> Builder {
        Builder::url(url)
    }

    /// Returns a builder for a database of the application.
    pub fn database_builder(database: Database) -> Builder {
        Builder::of_database(database)
    }

    /// Returns the migrations that create the collections and indexes with this prefix in an empty
    /// database, to read or to run by hand. After running them by hand, connect with
    /// [`Builder::create`] off.
    #[must_use]
    pub fn migrations(prefix: &str) -> Vec<Migration> {
        open::scripts(None, prefix)
    }

    /// Returns whether the server has transactions, which it has if it is in a replica set. The
    /// documentation of this crate lists what needs them.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        self.0.server.transactions
    }

    /// Stops the wakeups, and closes the connections unless the client is the application's. Later
    /// calls fail.
    async fn close_connections(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        if let Some(Some(coordinator)) = self.0.coordinator.get() {
            coordinator.close();
        }
        if self.0.clients.are_own() {
            self.0.clients.current().shut_down().await;
        }
    }

    pub(crate) async fn open(config: Config) -> Result<Self> {
        const OPERATION: &str = "connect";
        let pair = config.clients.current();
        let deadline = config.terms.deadline;
        let opening = async {
            let server = open::open(&pair.main, &config).await?;
            let routes = Routes::new(&pair.outages);
            routes.refresh(&pair.live).await?;
            Ok::<_, Failure>((server, routes))
        };
        let (server, routes) = match tokio::time::timeout(deadline, opening).await {
            Ok(opened) => opened.map_err(|failure| failure.during(OPERATION))?,
            Err(_) => return Err(too_late(deadline).during(OPERATION)),
        };
        let clock = match &config.clock_collection {
            None => Clock::Server,
            Some(name) => Clock::Test(pair.main.database.collection(name)),
        };
        let plaintext_host = config.plaintext_host();
        Ok(Self(Arc::new(Inside {
            plaintext_host,
            clients: Arc::new(config.clients),
            clock,
            routes,
            lookahead: Lookahead::default(),
            server,
            deadline,
            wakeups: config.wakeups,
            closed: AtomicBool::new(false),
            coordinator: OnceLock::new(),
            turn: Mutex::new(()),
            follows: AtomicBool::new(false),
        })))
    }

    /// Returns a host to which the driver connects without TLS.
    pub(crate) fn plaintext_host(&self) -> Option<&str> {
        self.0.plaintext_host.as_deref()
    }

    /// Returns the collections, accessed through the client for jobs.
    pub(crate) fn main(&self) -> &Side {
        &self.0.clients.current().main
    }

    /// Returns the collections, accessed through the client for heartbeats and locks.
    pub(crate) fn live(&self) -> &Side {
        &self.0.clients.current().live
    }

    pub(crate) fn clients(&self) -> &Clients {
        &self.0.clients
    }

    pub(crate) fn routes(&self) -> &Routes {
        &self.0.routes
    }

    pub(crate) fn lookahead(&self) -> &Lookahead {
        &self.0.lookahead
    }

    /// Waits for the turn and returns it. Settlements that conflicted in a batch, or are expected
    /// to, hold the turn, so that this store runs one of them at a time.
    pub(crate) async fn turn_in_batches(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// Records whether other jobs or batches waited for most jobs of the last settlement.
    pub(crate) fn note_follows(&self, follows: bool) {
        self.0.follows.store(follows, Ordering::Relaxed);
    }

    /// Returns whether other jobs or batches waited for most jobs of the last settlement, because
    /// the next settlement is probably similar.
    pub(crate) fn expects_to_follow(&self) -> bool {
        self.0.follows.load(Ordering::Relaxed)
    }

    /// Returns the time for a statement in which the server can evaluate expressions.
    pub(crate) async fn now(&self, side: &Side) -> Inner<Now> {
        self.0.clock.now(side).await
    }

    /// Reads the time, in milliseconds, for statements that need a constant.
    pub(crate) async fn millis(&self, side: &Side) -> Inner<i64> {
        self.0.clock.millis(side).await
    }

    /// Begins a transaction; on a server without transactions, returns a handle without one.
    pub(crate) async fn begin<'a>(&self, side: &'a Side) -> Inner<Tx<'a>> {
        if self.0.server.transactions {
            side.begin().await
        } else {
            Ok(side.plain())
        }
    }

    /// Fails if this server has no transactions.
    pub(crate) fn need_transactions(&self, what: &str) -> Inner<()> {
        if self.0.server.transactions {
            return Ok(());
        }
        Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!(
                "{what} needs transactions, and this server is a standalone: make it a replica \
                 set, for which one member is enough"
            ),
        ))
    }

    /// Runs a call that is safe to repeat. Repeats it after a server or a connection was lost.
    pub(crate) async fn call<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let none = ContentionBackoff::new(0, Duration::ZERO);
        self.repeat(operation, none, |loss| loss != Loss::No, work)
            .await
    }

    /// Runs work as [`call`](Self::call) does, but repeats it only if the server reports that the
    /// failed try had no effect. This is for work whose repetition would return another answer.
    pub(crate) async fn call_once<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let none = ContentionBackoff::new(0, Duration::ZERO);
        self.repeat(operation, none, |loss| loss == Loss::Told, work)
            .await
    }

    /// Runs work as [`call_once`](Self::call_once) does, for work that keeps state between tries:
    /// what it has done, or when it must end. Also retries it after contention, since a retry by
    /// the core would lose that state.
    pub(crate) async fn call_going_on<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let backoff = ContentionBackoff::new(RETRIES, self.0.deadline);
        self.repeat(operation, backoff, |loss| loss == Loss::Told, work)
            .await
    }

    /// Runs work and retries it: after contention as `backoff` decides, after a loss as `repeat`
    /// decides, and once with new clients if the user was dropped and created again.
    async fn repeat<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        mut backoff: ContentionBackoff,
        repeat: impl Fn(Loss) -> bool,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let tries = async {
            let began = time::monotonic();
            let (mut repeats, mut let_in) = (LossRepeats::at_most(REPEATS), false);
            loop {
                self.check_open()?;
                let clients = self.0.clients.current();
                let mut failure = match work().await {
                    Ok(done) => return Ok(done),
                    Err(failure) => failure,
                };
                if let Some(pause) = backoff.failed(failure.kind, began.elapsed(), fastrand::f64())
                {
                    tokio::time::sleep(pause).await;
                    continue;
                }
                match repeats.failed(failure.kind, repeat(failure.loss)) {
                    // An election may be in progress.
                    Ok(()) => tokio::time::sleep(pause(repeats.repeated() + 4)).await,
                    Err(_) if failure.user_is_gone && !let_in => {
                        let_in = self.0.clients.replace(clients).await;
                        if !let_in {
                            return Err(failure);
                        }
                        self.routes().follow(&self.0.clients.current().outages);
                    }
                    Err(kind) => {
                        failure.kind = kind;
                        return Err(self.name_missing_index(failure).await);
                    }
                }
            }
        };
        let done: Inner<T> = tries.await;
        done.map_err(|failure| failure.during(operation))
    }

    /// Adds the missing indexes to the failure of a statement whose hint names an index that does
    /// not exist.
    async fn name_missing_index(&self, failure: Failure) -> Failure {
        if failure.code != BAD_VALUE || !failure.is_altered() {
            return failure;
        }
        match open::missing(self.live()).await {
            Ok(findings) => {
                let missing = findings.into_iter().map(|finding| finding.summary);
                failure.about(&missing.collect::<Vec<_>>().join("; "))
            }
            Err(_) => failure,
        }
    }

    pub(crate) fn check_open(&self) -> Inner<()> {
        if self.0.closed.load(Ordering::SeqCst) {
            return Err(Failure::new(
                StoreErrorKind::Unavailable,
                "the store is closed",
            ));
        }
        Ok(())
    }
}

pub(crate) fn too_late(deadline: Duration) -> Failure {
    Failure::new(
        StoreErrorKind::Timeout,
        format!("no answer within {deadline:?}"),
    )
}

/// Returns how long to wait before the given repetition; the first is 1.
pub(crate) fn pause(repetition: u32) -> Duration {
    ContentionBackoff::pause(repetition, fastrand::f64())
}

impl fmt::Debug for MongoStore {
    /// Omits the clients' options, because they contain the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoStore")
            .field("database", &self.main().database.name())
            .field("server", &self.0.server)
            .finish_non_exhaustive()
    }
}

impl Store for MongoStore {
    fn info(&self) -> StoreInfo {
        let server = &self.0.server;
        let lacks = if server.transactions {
            ""
        } else {
            " (standalone: no transactions)"
        };
        StoreInfo {
            backend: "mongo",
            version: format!("{}{lacks}", server.version),
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

    fn guards(&self) -> bool {
        self.has_transactions()
    }

    fn call_policy(&self) -> CallPolicy {
        CallPolicy::within(self.0.deadline).retries(RETRIES)
    }

    fn recurring(&self) -> Option<&dyn RecurringStore> {
        self.has_transactions()
            .then_some(self as &dyn RecurringStore)
    }

    fn workflows(&self) -> Option<&dyn WorkflowStore> {
        self.has_transactions()
            .then_some(self as &dyn WorkflowStore)
    }

    fn signals(&self) -> Option<&dyn SignalStore> {
        self.has_transactions().then_some(self as &dyn SignalStore)
    }

    fn transactions(&self) -> Option<&dyn TransactionStore> {
        // Available on a standalone server too, where calls fail with an error that says what to
        // do.
        Some(self)
    }

    fn diagnostics(&self) -> Option<&dyn DiagnosticStore> {
        Some(self)
    }

    fn archive(&self) -> Option<&dyn ArchiveStore> {
        self.has_transactions().then_some(self as &dyn ArchiveStore)
    }

    fn permits(&self) -> Option<&dyn PermitStore> {
        self.has_transactions().then_some(self as &dyn PermitStore)
    }

    fn rates(&self) -> Option<&dyn RateStore> {
        Some(self)
    }

    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        let inside = &self.0;
        if !inside.wakeups || !inside.server.transactions || inside.closed.load(Ordering::SeqCst) {
            return None;
        }
        let start = || Some(Arc::new(MongoCoordinator::new(&inside.clients)));
        let coordinator = inside.coordinator.get_or_init(start).as_ref()?;
        Some(Arc::clone(coordinator) as Arc<dyn ClusterCoordinator>)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.close_connections())
    }
}
