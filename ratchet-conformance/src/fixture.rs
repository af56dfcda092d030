use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::memory::ManualClock;
use ratchet_core::{JobId, Name, SharedStore, time};

use crate::app::Transactions;

/// The error type of fixtures, which holds an error of any type.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An isolated, empty database, created for one test case and removed after that case.
///
/// A fixture may also keep its database and empty it for the next case. See [`Slot`](crate::Slot).
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens a new handle on the database, as a separate node or process would. Every handle has
    /// its own connections to the same database.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn open(&self) -> Result<SharedStore, BoxError>;

    /// Resets the database to a state without tables, as if no store had opened it yet. Cases that
    /// test the first opening call this method before they open the database.
    ///
    /// The default implementation does nothing. It suits fixtures that create a new database for
    /// every case.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn renew(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Returns the control of the database's clock, or `None` if the fixture cannot set the clock.
    /// The suite requires this control for [`Power::Clock`].
    fn clock(&self) -> Option<&dyn TestClock> {
        None
    }

    /// Returns the tool that damages stored rows, or `None` if the fixture has no such tool. The
    /// suite requires this tool for [`Power::Vandal`].
    fn vandal(&self) -> Option<&dyn Vandal> {
        None
    }

    /// Returns the tool that counts stored rows, or `None` if the fixture has no such tool. The
    /// suite requires this tool for [`Power::Residue`].
    fn residue(&self) -> Option<&dyn Residue> {
        None
    }

    /// Returns the tool that restarts the database, or `None` if the data is lost when the process
    /// ends. The suite requires this tool for [`Power::Restart`].
    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    /// Returns a text with which another process can open the database, such as a path or a URL, or
    /// `None` if no other process can open it. The suite passes the text to the function of
    /// [`Suite::attach`](crate::Suite::attach), and requires it for [`Power::Processes`].
    ///
    /// The suite first calls [`Restart::end_processes`]. If an engine lets only one process open
    /// its files, this process must then have closed them until the next [`open`](Self::open).
    fn address(&self) -> Option<String> {
        None
    }

    /// Returns the tool that opens the database with a clock of the machine that a test sets, or
    /// `None` if the fixture has no such tool. The suite requires this tool for
    /// [`Power::MachineClock`].
    fn machine_clock(&self) -> Option<&dyn MachineClock> {
        None
    }

    /// Returns the tool that opens the database for an application with transactions of its own, or
    /// `None` if jobs cannot be enqueued in such transactions. The suite requires this tool for
    /// [`Power::Transactions`].
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// Removes the database. The suite calls this method once, after the case has dropped its
    /// handles, even if the case panicked.
    async fn teardown(&self) {}
}

/// The clock of a database under test. All handles on the database must use this clock. The clock
/// moves only when a method of this trait is called.
#[async_trait]
pub trait TestClock: Send + Sync {
    /// Moves the clock by `millis` milliseconds. A negative number moves the clock back, as an
    /// operator or a faulty time server can.
    async fn move_by(&self, millis: i64);

    /// Moves the clock forward by the duration `by`.
    async fn advance(&self, by: Duration) {
        self.move_by(time::duration_millis(by)).await;
    }

    /// Moves the clock back by the duration `by`.
    async fn set_back(&self, by: Duration) {
        self.move_by(-time::duration_millis(by)).await;
    }
}

#[async_trait]
impl TestClock for ManualClock {
    async fn move_by(&self, millis: i64) {
        let by = Duration::from_millis(millis.unsigned_abs());
        if millis < 0 {
            Self::set_back(self, by);
        } else {
            Self::advance(self, by);
        }
    }
}

/// Damages stored rows directly in the database, without calling the store.
#[async_trait]
pub trait Vandal: Send + Sync {
    /// Damages one field of the stored row of the pending job `job`, so that the job can no longer
    /// run. For example, stores an unknown enum value or text that is not UTF-8. The other fields
    /// and the index entries must stay intact, so that claims and listings still find the row.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn spoil(&self, job: JobId) -> Result<(), BoxError>;

    /// Damages the stored row of the ended job `job` so much that no call can return the job. For
    /// example, damages the whole row, or a required field such as the kind. Purges, archive passes
    /// and selections of jobs by filter must still find the row.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError>;

    /// Damages one field of the stored recurring definition `name`, for example its schedule.
    /// Claims must still find the definition. The suite calls this method only for stores with
    /// recurring definitions.
    ///
    /// # Errors
    /// Any error. The suite then fails the case. The default implementation always returns an
    /// error.
    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        Err(format!("the fixture cannot damage the recurring definition {name}").into())
    }

    /// Makes the stored owner of the lock `name` unreadable. Also adds a second lock with an
    /// invalid stored name, which consists of `name` and the character U+0001.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError>;

    /// Deletes all jobs, and all stored routes except the first one, as the restore of an older
    /// backup does. New routes then get the ids of the deleted ones. If the store uses cached
    /// routes for some time without comparing them with the database, returns after that time.
    ///
    /// The default implementation does nothing. It suits stores that keep the whole route in each
    /// job.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn lose_routes(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Makes the stored schema version unreadable and removes a part of the schema. The suite calls
    /// this method only for stores with diagnostics.
    ///
    /// # Errors
    /// Any error. The suite then fails the case. The default implementation always returns an
    /// error.
    async fn spoil_schema(&self) -> Result<(), BoxError> {
        Err("the fixture cannot damage the schema".into())
    }
}

/// Counts stored rows directly in the database, without calling the store.
#[async_trait]
pub trait Residue: Send + Sync {
    /// Returns the number of rows in all tables that belong to single jobs. These are the rows of
    /// jobs, payloads, notes, attempts, tags, unique keys, and memberships of lanes, links, batches
    /// and signals. Rows of idempotency keys and archived jobs do not count.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn rows_of_jobs(&self) -> Result<u64, BoxError>;
}

/// Restarts everything that uses a database.
#[async_trait]
pub trait Restart: Send + Sync {
    /// Discards all data that is kept only in memory, as if every process that uses the database
    /// had ended. The case has already dropped its handles.
    ///
    /// The default implementation does nothing. It suits fixtures that open a new handle on the
    /// database for each [`open`](Fixture::open), and keep no handle themselves.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn end_processes(&self) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Replaces the clock of the machine for a store that computes its time from this clock.
#[async_trait]
pub trait MachineClock: Send + Sync {
    /// Opens a handle on the database. The store uses the clock that it uses in production, except
    /// that this clock reads the time of the machine from `machine`.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn open(&self, machine: ManualClock) -> Result<SharedStore, BoxError>;
}

/// An optional ability of a fixture, a store or a coordinator. If a case needs a power that the
/// suite was not given, the suite lists the case as ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Power {
    /// The fixture can set the database's [clock](Fixture::clock). Without this power, the suite
    /// does not test any behavior that depends on time.
    Clock,
    /// The fixture can damage stored rows. See [`Fixture::vandal`].
    Vandal,
    /// The fixture can count stored rows. See [`Fixture::residue`].
    Residue,
    /// The data remains when every process has ended. See [`Fixture::restart`].
    Restart,
    /// Other processes can open the database. See [`Fixture::address`].
    Processes,
    /// The store computes its time from the clock of the machine, and the fixture can replace that
    /// clock. See [`Fixture::machine_clock`]. A store that reads the time from a server or from a
    /// database engine does not have this power.
    MachineClock,
    /// Jobs can be enqueued in transactions of the application, and the fixture can begin them. See
    /// [`Fixture::transactions`].
    Transactions,
    /// A transaction of the application that is still open holds up only calls on the jobs and
    /// lanes that it has locked. A database with one writer at a time does not have this power.
    RowLocks,
    /// The store supports recurring definitions. See
    /// [`Store::recurring`](ratchet_core::Store::recurring).
    Recurring,
    /// The store has an archive. See [`Store::archive`](ratchet_core::Store::archive).
    Archive,
    /// The store supports permits. See [`Store::permits`](ratchet_core::Store::permits).
    Permits,
    /// The store supports rates. See [`Store::rates`](ratchet_core::Store::rates).
    Rates,
    /// The store supports links and batches. See
    /// [`Store::workflows`](ratchet_core::Store::workflows).
    Workflows,
    /// The store supports signals. See [`Store::signals`](ratchet_core::Store::signals).
    Signals,
    /// The store has diagnostics. See [`Store::diagnostics`](ratchet_core::Store::diagnostics).
    Diagnostics,
    /// The store supports lanes. See
    /// [`StoreFeature::Lanes`](ratchet_core::store::StoreFeature::Lanes).
    Lanes,
    /// The store supports tags. See
    /// [`StoreFeature::Tags`](ratchet_core::store::StoreFeature::Tags).
    Tags,
    /// The store supports idempotency keys. See
    /// [`StoreFeature::IdempotencyKeys`](ratchet_core::store::StoreFeature::IdempotencyKeys).
    IdempotencyKeys,
    /// The store supports fair keys. See
    /// [`StoreFeature::FairKeys`](ratchet_core::store::StoreFeature::FairKeys).
    FairKeys,
    /// The store supports guarded writes. See
    /// [`StoreFeature::Guards`](ratchet_core::store::StoreFeature::Guards).
    Guards,
    /// The coordinator delivers wakeups while its transport works.
    Delivery,
    /// The fixture can interrupt the transport. See
    /// [`CoordinatorFixture::outage`](crate::CoordinatorFixture::outage).
    Outage,
}

impl Power {
    /// The powers of most stores and their fixtures. [`MachineClock`](Self::MachineClock),
    /// [`FairKeys`](Self::FairKeys), [`Transactions`](Self::Transactions) and
    /// [`RowLocks`](Self::RowLocks) are not among them.
    pub const STORE: &'static [Self] = &[
        Self::Clock,
        Self::Vandal,
        Self::Residue,
        Self::Restart,
        Self::Processes,
        Self::Recurring,
        Self::Archive,
        Self::Permits,
        Self::Rates,
        Self::Workflows,
        Self::Signals,
        Self::Diagnostics,
        Self::Lanes,
        Self::Tags,
        Self::IdempotencyKeys,
        Self::Guards,
    ];

    /// The powers of [`MemoryFixture`](crate::MemoryFixture), which uses the in-memory store. A
    /// fixture for a store that wraps the in-memory store has the same powers.
    pub const MEMORY: &'static [Self] = &[
        Self::Clock,
        Self::Recurring,
        Self::Archive,
        Self::Permits,
        Self::Rates,
        Self::Workflows,
        Self::Signals,
        Self::Diagnostics,
        Self::Lanes,
        Self::Tags,
        Self::IdempotencyKeys,
        Self::FairKeys,
        Self::Guards,
    ];
}

/// Creates a [`Fixture`] for each case.
#[derive(Clone)]
pub struct Factory(Arc<Create>);

type Create = dyn Fn() -> BoxFuture<'static, Made> + Send + Sync;
type Made = Result<Arc<dyn Fixture>, BoxError>;

impl Factory {
    /// Creates a factory that calls `create` once for every case. `create` returns the fixture of
    /// the case.
    pub fn new<F, Making, X>(create: F) -> Self
    where
        F: Fn() -> Making + Send + Sync + 'static,
        Making: Future<Output = Result<X, BoxError>> + Send + 'static,
        X: Fixture,
    {
        Self(Arc::new(move || {
            let made = create();
            Box::pin(async move { Ok(Arc::new(made.await?) as Arc<dyn Fixture>) })
        }))
    }

    pub(crate) async fn create(&self) -> Result<Arc<dyn Fixture>, BoxError> {
        (self.0)().await
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Factory")
    }
}

/// The result of checking whether the suite can run in this environment.
///
/// Every test process makes this check before it lists the cases, so the check must be fast. It
/// should only read environment variables, and connect at most once.
#[derive(Clone, Debug)]
pub enum Provision<T = Factory> {
    /// The suite can run. The value is the factory that creates the fixtures.
    Ready(T),
    /// The suite cannot run. The value is the reason, such as "MYSTORE_TEST_URL is not set".
    Unavailable(String),
}

impl Provision {
    /// Returns [`Provision::Ready`] with a factory that calls `create` once for every case.
    /// `create` returns the fixture of the case.
    pub fn ready<F, Making, X>(create: F) -> Self
    where
        F: Fn() -> Making + Send + Sync + 'static,
        Making: Future<Output = Result<X, BoxError>> + Send + 'static,
        X: Fixture,
    {
        Self::Ready(Factory::new(create))
    }
}

impl<T> Provision<T> {
    /// Returns [`Provision::Unavailable`] with this reason.
    #[must_use]
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable(reason.into())
    }
}
