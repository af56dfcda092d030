use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::memory::ManualClock;
use ratchet_core::{JobId, Name, SharedStore, time};

/// Any error of a fixture.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An isolated, empty database, created for one case and removed after it.
///
/// A fixture may keep its database and only empty it for the next case: see [`Slot`](crate::Slot).
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens the database once more, as another node or process would. Every call returns a
    /// separate handle, with its own connections, on the same database.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn open(&self) -> Result<SharedStore, BoxError>;

    /// Resets the database to its state before any store opens it, without tables. Cases about the
    /// first opening call this before they open the database. The default does nothing, which suits
    /// fixtures that create a new database for every case.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn renew(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Returns the control of the database's clock, for [`Power::Clock`].
    fn clock(&self) -> Option<&dyn TestClock> {
        None
    }

    /// Returns the means to damage stored rows, for [`Power::Vandal`].
    fn vandal(&self) -> Option<&dyn Vandal> {
        None
    }

    /// Returns the means to count stored rows, for [`Power::Residue`].
    fn residue(&self) -> Option<&dyn Residue> {
        None
    }

    /// Removes the database. The suite calls this once, after every handle was dropped, even if the
    /// case panicked.
    async fn teardown(&self) {}
}

/// The clock of a database under test. All handles on the database use this clock instead of their
/// own, and only these calls move it.
#[async_trait]
pub trait TestClock: Send + Sync {
    /// Moves the clock by this many milliseconds. A negative number sets it back, as an operator or
    /// a faulty time server can.
    async fn move_by(&self, millis: i64);

    /// Moves the clock forward.
    async fn advance(&self, by: Duration) {
        self.move_by(time::duration_millis(by)).await;
    }

    /// Moves the clock back.
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

/// Damages stored rows without going through the store.
#[async_trait]
pub trait Vandal: Send + Sync {
    /// Makes the stored row of this pending job unreadable, for example with a number that is no
    /// enum variant, or with text that is not UTF-8. The row's index entries stay, so that claims
    /// and listings still find it.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil(&self, job: JobId) -> Result<(), BoxError>;

    /// Makes the whole stored row of this ended job unreadable, so that no read can return it,
    /// while maintenance passes still find it. For stores with an archive.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        Err(format!("the fixture cannot spoil the ended job {job}").into())
    }

    /// Makes a stored part of this recurring definition unreadable, such as its schedule, while
    /// claims still find the definition. For stores with recurring definitions.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        Err(format!("the fixture cannot spoil the definition {name}").into())
    }

    /// Makes the owner of this lock unreadable, and adds a lock whose stored name is invalid: this
    /// name followed by U+0001.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError>;

    /// Makes the version of the schema unreadable, and removes a part of the schema. For stores
    /// with diagnostics.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil_schema(&self) -> Result<(), BoxError> {
        Err("the fixture cannot spoil the schema".into())
    }
}

/// Counts stored rows without using the store.
#[async_trait]
pub trait Residue: Send + Sync {
    /// Counts the rows of all tables that belong to single jobs: jobs, payloads, notes, attempts,
    /// tags, unique keys, and memberships of lanes, links, batches and signals. Idempotency keys
    /// and archived jobs are not counted.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn rows_of_jobs(&self) -> Result<u64, BoxError>;
}

/// An optional ability of a fixture, its store or a coordinator. The suite lists a case as ignored
/// if the case needs a power that the suite was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Power {
    /// The fixture has a [clock](Fixture::clock). Without it, nothing that depends on time is
    /// tested.
    Clock,
    /// The fixture can damage rows: [`Fixture::vandal`].
    Vandal,
    /// The fixture can count rows: [`Fixture::residue`].
    Residue,
    /// The store has recurring definitions: [`Store::recurring`](ratchet_core::Store::recurring).
    Recurring,
    /// The store has an archive: [`Store::archive`](ratchet_core::Store::archive).
    Archive,
    /// The store has permits: [`Store::permits`](ratchet_core::Store::permits).
    Permits,
    /// The store has rates: [`Store::rates`](ratchet_core::Store::rates).
    Rates,
    /// The store has links and batches: [`Store::workflows`](ratchet_core::Store::workflows).
    Workflows,
    /// The store has signals: [`Store::signals`](ratchet_core::Store::signals).
    Signals,
    /// The store has diagnostics: [`Store::diagnostics`](ratchet_core::Store::diagnostics).
    Diagnostics,
    /// The coordinator's wakeups arrive while its transport is healthy.
    Delivery,
    /// The fixture can cut the transport:
    /// [`CoordinatorFixture::outage`](crate::CoordinatorFixture::outage).
    Outage,
}

impl Power {
    /// All powers that a store and its fixture may have.
    pub const STORE: &'static [Self] = &[
        Self::Clock,
        Self::Vandal,
        Self::Residue,
        Self::Recurring,
        Self::Archive,
        Self::Permits,
        Self::Rates,
        Self::Workflows,
        Self::Signals,
        Self::Diagnostics,
    ];

    /// The powers of the in-memory store with its fixture, and of a store that wraps it.
    pub const MEMORY: &'static [Self] = &[
        Self::Clock,
        Self::Recurring,
        Self::Archive,
        Self::Permits,
        Self::Rates,
        Self::Workflows,
        Self::Signals,
        Self::Diagnostics,
    ];
}

/// Creates fixtures.
#[derive(Clone)]
pub struct Factory(Arc<Create>);

type Create = dyn Fn() -> BoxFuture<'static, Made> + Send + Sync;
type Made = Result<Arc<dyn Fixture>, BoxError>;

impl Factory {
    /// Creates a factory that calls `create` for every case.
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

/// Whether the suite can run here. Every process determines this before it lists the cases, so the
/// check must be cheap: read the environment and connect at most once.
#[derive(Clone, Debug)]
pub enum Provision<T = Factory> {
    /// The suite can run, with this factory of fixtures.
    Ready(T),
    /// The suite cannot run, for this reason: "MYSTORE_TEST_URL is not set".
    Unavailable(String),
}

impl Provision {
    /// Creates the provision of a suite that can run. `create` creates the fixture of each case.
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
    /// Creates the provision of a suite that cannot run, for this reason.
    #[must_use]
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable(reason.into())
    }
}
