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
    /// first opening call this before they open the database. The default does nothing, for
    /// fixtures that create a new database for every case.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn renew(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Returns the database's clock, which the case sets, for [`Power::Clock`].
    fn clock(&self) -> Option<&dyn TestClock> {
        None
    }

    /// Returns how to damage what is stored, for [`Power::Vandal`].
    fn vandal(&self) -> Option<&dyn Vandal> {
        None
    }

    /// Returns how to count what is stored, for [`Power::Residue`].
    fn residue(&self) -> Option<&dyn Residue> {
        None
    }

    /// Removes the database. Called once, after every handle was dropped, also when the case
    /// panicked.
    async fn teardown(&self) {}
}

/// The clock of a database under test. All its handles use it instead of their own, and it only
/// moves by these calls.
#[async_trait]
pub trait TestClock: Send + Sync {
    /// Moves it by this many milliseconds; a negative number sets it back, as an operator or a bad
    /// time server can.
    async fn move_by(&self, millis: i64);

    /// Moves it forward.
    async fn advance(&self, by: Duration) {
        self.move_by(time::duration_millis(by)).await;
    }

    /// Moves it back.
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

/// Damages stored rows behind the store's back.
#[async_trait]
pub trait Vandal: Send + Sync {
    /// Makes the stored row of this pending job unreadable, for example with a number of no enum
    /// variant or text that is not UTF-8. Its index entries stay, so that claims and listings still
    /// find it.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil(&self, job: JobId) -> Result<(), BoxError>;

    /// Makes the whole stored row of this ended job unreadable, so that no reader can show it,
    /// while passes still find it. For stores with an archive.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        Err(format!("the fixture cannot spoil the ended job {job}").into())
    }

    /// Makes what is stored of this recurring definition unreadable, such as its schedule, while
    /// claims still find it. For stores with recurring definitions.
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
    /// and archived jobs do not count.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn rows_of_jobs(&self) -> Result<u64, BoxError>;
}

/// What a fixture, its store or a coordinator may offer beyond the minimum. Cases that need a power
/// that the suite was not given are listed as ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Power {
    /// [`Fixture::clock`]: without it nothing that depends on time is tested.
    Clock,
    /// [`Fixture::vandal`].
    Vandal,
    /// [`Fixture::residue`].
    Residue,
    /// The store keeps recurring definitions: [`Store::recurring`](ratchet_core::Store::recurring).
    Recurring,
    /// The stores it opens have an archive ([`Store::archive`](ratchet_core::Store::archive)).
    Archive,
    /// The store has permits: [`Store::permits`](ratchet_core::Store::permits).
    Permits,
    /// The store keeps rates: [`Store::rates`](ratchet_core::Store::rates).
    Rates,
    /// The store has links and batches, [`Store::workflows`](ratchet_core::Store::workflows).
    Workflows,
    /// The store has signals, [`Store::signals`](ratchet_core::Store::signals).
    Signals,
    /// The store has diagnostics, [`Store::diagnostics`](ratchet_core::Store::diagnostics).
    Diagnostics,
    /// A coordinator's wakeups arrive while its transport is healthy.
    Delivery,
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

    /// The powers of the in-memory store and its fixture, and so of a store that wraps it.
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

/// Whether the suite can run here. Every process determines it before it lists the cases, so it
/// must be cheap: read the environment, connect at most once.
#[derive(Clone, Debug)]
pub enum Provision<T = Factory> {
    /// It can.
    Ready(T),
    /// It cannot, for this reason: "MYSTORE_TEST_URL is not set".
    Unavailable(String),
}

impl Provision {
    /// The suite can run: `create` creates the fixture of a case.
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
    /// The suite cannot run, for this reason.
    #[must_use]
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable(reason.into())
    }
}
