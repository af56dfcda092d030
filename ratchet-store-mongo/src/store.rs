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
    ArchiveStore, CallPolicy, Checked, ContentionBackoff, DiagnosticStore, FairStore, JobStore,
    LockStore, LossRepeats, NodeStore, PermitStore, QueueStore, RateStore, RecurringStore,
    SignalStore, Store, StoreFeature, StoreInfo, TransactionStore, VersionStore, WorkflowStore,
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

/// A store that keeps its data in the collections of a MongoDB database.
///
/// Clones share the connections. All stores that use the same collections form one cluster. They
/// may run in any number of processes and on any number of hosts.
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
    /// A host to which the driver connects without TLS, if there is one.
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
    /// Lock for settlements that conflicted because of a batch, or that are expected to conflict. A
    /// settlement holds it while it runs, so that such settlements run one at a time.
    turn: Mutex<()>,
    /// Whether other jobs or batches depended on the ends of most jobs of the last settlement call.
    follows: AtomicBool,
    /// Lock for calls that give turns to jobs with a fair key, so that those of this store do not
    /// conflict with each other.
    gives: Mutex<()>,
    /// Whether a limit of fair keys was ever set, as far as this store knows.
    limits: AtomicBool,
}

/// Properties of the connected server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) version: String,
    /// Whether the server supports transactions and change streams.
    pub(crate) transactions: bool,
}

/// Maximum number of retries of a call after contention. It is large because a transaction of
/// MongoDB does not wait for a conflicting transaction but fails. Usually the deadline ends the
/// retries.
const RETRIES: u32 = 1_000;
/// Maximum number of times that a call is repeated after a server or a connection was lost.
const REPEATS: u32 = 5;

impl MongoStore {
    /// Connects to the database at this URL and creates missing collections and indexes.
    ///
    /// The URL has the form `mongodb://user:password@host:27017/database` or `mongodb+srv://…`. It
    /// accepts the options of the driver, such as `replicaSet`, `authSource` and `tls`.
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Checked<Self>> {
        Self::builder(url).connect().await
    }

    /// Connects through a database handle of the application. The store uses the client of the
    /// handle for all calls, including heartbeats and locks. It ignores the read and write concerns
    /// of the handle, because each call sets its own.
    ///
    /// # Errors
    /// The same as for [`Builder::connect`].
    pub async fn from_database(database: Database) -> Result<Checked<Self>> {
        Self::database_builder(database).connect().await
    }

    /// Returns a builder that connects to the database at this URL.
    pub fn builder(url: &str) -> Builder {
        Builder::url(url)
    }

    /// Returns a builder that connects through this database handle of the application.
    pub fn database_builder(database: Database) -> Builder {
        Builder::of_database(database)
    }

    /// Returns the migrations that create the collections and indexes in an empty database.
    /// `prefix` is the prefix of the collections' names.
    ///
    /// You can read the scripts of these migrations, or run them by hand. If you run them by hand,
    /// connect with [`Builder::create`] set to `false`.
    #[must_use]
    pub fn migrations(prefix: &str) -> Vec<Migration> {
        open::scripts(None, prefix)
    }

    /// Returns whether the server supports transactions. Every member of a replica set supports
    /// them. The documentation of this crate lists the features that need transactions.
    #[must_use]
    pub fn has_transactions(&self) -> bool {
        self.0.server.transactions
    }

    /// Stops the wakeups and makes later calls fail. Closes the connections, unless the client
    /// belongs to the application.
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
            let routes = Routes::new(&pair.outages, config.own_queues);
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
            gives: Mutex::new(()),
            limits: AtomicBool::new(false),
        })))
    }

    /// Returns a host to which the driver connects without TLS, if there is one.
    pub(crate) fn plaintext_host(&self) -> Option<&str> {
        self.0.plaintext_host.as_deref()
    }

    /// Returns the collections, for access with the client for jobs.
    pub(crate) fn main(&self) -> &Side {
        &self.0.clients.current().main
    }

    /// Returns the collections, for access with the client for heartbeats and locks.
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

    /// Waits for the lock `turn` and returns its guard. A settlement that conflicted because of a
    /// batch, or that is expected to conflict, holds this lock. So this store runs only one such
    /// settlement at a time.
    pub(crate) async fn turn_in_batches(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// Waits until no other call of this store gives turns to jobs with a fair key, and returns the
    /// guard of the lock.
    pub(crate) async fn giving_turns(&self) -> MutexGuard<'_, ()> {
        self.0.gives.lock().await
    }

    /// Returns whether this store knows that a limit of fair keys was ever set.
    pub(crate) fn has_seen_limits(&self) -> bool {
        self.0.limits.load(Ordering::Relaxed)
    }

    /// Records that a limit of fair keys was set.
    pub(crate) fn note_limits(&self) {
        self.0.limits.store(true, Ordering::Relaxed);
    }

    /// Records whether other jobs or batches depended on the ends of most jobs of the last
    /// settlement call.
    pub(crate) fn note_follows(&self, follows: bool) {
        self.0.follows.store(follows, Ordering::Relaxed);
    }

    /// Returns whether other jobs or batches depended on the ends of most jobs of the last
    /// settlement call. The next call is probably similar.
    pub(crate) fn expects_to_follow(&self) -> bool {
        self.0.follows.load(Ordering::Relaxed)
    }

    /// Returns the current time, for a statement that can contain expressions.
    pub(crate) async fn now(&self, side: &Side) -> Inner<Now> {
        self.0.clock.now(side).await
    }

    /// Reads the current time in milliseconds, for a statement that needs a constant.
    pub(crate) async fn millis(&self, side: &Side) -> Inner<i64> {
        self.0.clock.millis(side).await
    }

    /// Begins a transaction. On a server without transactions, returns a handle that runs each
    /// statement on its own.
    pub(crate) async fn begin<'a>(&self, side: &'a Side) -> Inner<Tx<'a>> {
        if self.0.server.transactions {
            side.begin().await
        } else {
            Ok(side.plain())
        }
    }

    /// Fails with `Misconfigured` if the server has no transactions. `what` names the feature that
    /// needs them.
    pub(crate) fn need_transactions(&self, what: &str) -> Inner<()> {
        if self.0.server.transactions {
            return Ok(());
        }
        Err(Failure::new(
            StoreErrorKind::Misconfigured,
            format!(
                "{what} needs transactions, but this server is a standalone: start it as a replica \
                 set; one member is enough"
            ),
        ))
    }

    /// Runs work that is safe to repeat. Repeats the work if a server or a connection was lost.
    pub(crate) async fn call<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let none = ContentionBackoff::new(0, Duration::ZERO);
        self.repeat(operation, none, |loss| loss != Loss::No, work)
            .await
    }

    /// Runs work that would return a different answer if it ran twice. Repeats the work only if the
    /// server reports that the failed try had no effect. Otherwise, it behaves as
    /// [`call`](Self::call) does.
    pub(crate) async fn call_once<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let none = ContentionBackoff::new(0, Duration::ZERO);
        self.repeat(operation, none, |loss| loss == Loss::Told, work)
            .await
    }

    /// Runs work that keeps state between tries, such as its progress or its end time. Repeats the
    /// work as [`call_once`](Self::call_once) does, and also after contention. The core cannot
    /// retry after contention here, because a retry by the core would lose the state.
    pub(crate) async fn call_going_on<T, Work: Future<Output = Inner<T>>>(
        &self,
        operation: &'static str,
        work: impl Fn() -> Work,
    ) -> Result<T> {
        let backoff = ContentionBackoff::new(RETRIES, self.0.deadline);
        self.repeat(operation, backoff, |loss| loss == Loss::Told, work)
            .await
    }

    /// Runs work and repeats it after some failures. `backoff` decides about retries after
    /// contention, and `repeat` about repetitions after a loss. If the database user was dropped
    /// and created again, the work is repeated once with new clients.
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
                    // Wait before the repetition, because an election may be in progress.
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

    /// If a statement failed because it names an index that does not exist, adds the names of all
    /// missing indexes to the failure. Returns other failures unchanged.
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
        format!("the store did not answer within {deadline:?}"),
    )
}

/// Returns the pause before repetition number `repetition`. The first repetition has number 1.
pub(crate) fn pause(repetition: u32) -> Duration {
    ContentionBackoff::pause(repetition, fastrand::f64())
}

impl fmt::Debug for MongoStore {
    /// Formats the store without the options of the clients, because these contain the password.
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

    fn lacks(&self, feature: StoreFeature) -> Option<&'static str> {
        match feature {
            StoreFeature::Lanes
            | StoreFeature::IdempotencyKeys
            | StoreFeature::Guards
            | StoreFeature::FairKeys => (!self.has_transactions()).then_some(
                "it needs transactions, and the server is a standalone; make it a replica \
                     set, for which one member is enough",
            ),
            _ => None,
        }
    }

    fn call_policy(&self) -> CallPolicy {
        CallPolicy::within(self.0.deadline)
            .retries(RETRIES)
            .gathers(true)
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
        // The trait is available on a standalone server too. Its calls then fail with an error that
        // says what to do.
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

    fn fair(&self) -> Option<&dyn FairStore> {
        self.has_transactions().then_some(self as &dyn FairStore)
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
