use std::error::Error;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::memory::ManualClock;
use ratchet_core::{JobId, Name, SharedStore};

/// Any error a fixture may have.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// One isolated, empty database, made for one case and taken away after it.
///
/// A fixture may keep a database and only empty it for the next case: see [`Slot`](crate::Slot).
#[async_trait]
pub trait Fixture: Send + Sync + 'static {
    /// Opens the database once more, as another node or process would. Every call gives its own
    /// handle, with its own connections, on the same database.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn open(&self) -> Result<SharedStore, BoxError>;

    /// Makes the database what it is before any store opens it, without tables. Cases about the first
    /// opening call this before they open the database. The default does nothing, for fixtures that
    /// make a new database for every case.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn renew(&self) -> Result<(), BoxError> {
        Ok(())
    }

    /// The power [`Power::Clock`]: the database's clock, to be set by the case.
    fn clock(&self) -> Option<&dyn TestClock> {
        None
    }

    /// The power [`Power::Vandal`]: damaging what is stored.
    fn vandal(&self) -> Option<&dyn Vandal> {
        None
    }

    /// The power [`Power::Residue`]: counting what is stored.
    fn residue(&self) -> Option<&dyn Residue> {
        None
    }

    /// Takes the database away. Called once, after every handle was dropped, also when the case
    /// panicked.
    async fn teardown(&self) {}
}

/// The clock of a database under test: all its handles use it in place of their own, and it stands
/// still but for these calls.
#[async_trait]
pub trait TestClock: Send + Sync {
    /// Moves it forward.
    async fn advance(&self, by: Duration);

    /// Moves it back, as an operator or a bad time server may.
    async fn set_back(&self, by: Duration);
}

#[async_trait]
impl TestClock for ManualClock {
    async fn advance(&self, by: Duration) {
        Self::advance(self, by);
    }

    async fn set_back(&self, by: Duration) {
        Self::set_back(self, by);
    }
}

/// Damages stored rows behind the store's back.
#[async_trait]
pub trait Vandal: Send + Sync {
    /// Makes the stored row of this pending job unreadable, while its index entries stay so that
    /// claims and listings still come upon it: a number no enum has, text that is not UTF-8.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn spoil(&self, job: JobId) -> Result<(), BoxError>;

    /// Makes the stored row of this ended job unreadable as a whole, so that no reader can show it,
    /// while passes still come upon it. For stores that have an archive.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn spoil_ended(&self, job: JobId) -> Result<(), BoxError> {
        Err(format!("the fixture cannot spoil the ended job {job}").into())
    }

    /// Makes what is stored of this recurring definition unreadable, its schedule for one, while
    /// claims still come upon it. For stores that keep such definitions.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn spoil_recurring(&self, name: &Name) -> Result<(), BoxError> {
        Err(format!("nobody says how to spoil the definition {name}").into())
    }

    /// Makes the owner of this lock unreadable, and puts a lock beside it whose stored name is none:
    /// this one with U+0001 behind it.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn spoil_lock(&self, name: &Name) -> Result<(), BoxError>;

    /// Makes the version of the schema unreadable, and takes something of the schema away. For stores
    /// that look at their database.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn spoil_schema(&self) -> Result<(), BoxError> {
        Err("nobody says how to spoil the schema".into())
    }
}

/// Counts stored rows without asking the store.
#[async_trait]
pub trait Residue: Send + Sync {
    /// Counts the rows of all tables that belong to single jobs: jobs, payloads, notes, attempts,
    /// tags, unique keys, and memberships of lanes, links, batches and signals. Idempotency keys and
    /// archived jobs do not count.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn rows_of_jobs(&self) -> Result<u64, BoxError>;
}

/// What a fixture, its store or a coordinator may be able to do beyond the minimum. Cases that need more than
/// the suite was told are listed as ignored.
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
    /// The store looks at its database, [`Store::diagnostics`](ratchet_core::Store::diagnostics).
    Diagnostics,
    /// A coordinator's wakeups arrive while its transport is healthy.
    Delivery,
    /// [`CoordinatorFixture::outage`](crate::CoordinatorFixture::outage).
    Outage,
}

impl Power {
    /// All that a store and its fixture may have.
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

    /// What the in-memory store and its fixture have, and so a store that wraps it.
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

/// Makes a fixture, again and again.
#[derive(Clone)]
pub struct Factory(Arc<Create>);

type Create = dyn Fn() -> BoxFuture<'static, Made> + Send + Sync;
type Made = Result<Arc<dyn Fixture>, BoxError>;

impl Factory {
    /// A factory that calls `create` for every case.
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

/// Whether the suite can run here. Found out before the cases are listed, in every process, so it
/// must be cheap: look at the environment, at most connect once.
#[derive(Clone, Debug)]
pub enum Provision<T = Factory> {
    /// It can.
    Ready(T),
    /// It cannot, for this reason: "MYSTORE_TEST_URL is not set".
    Unavailable(String),
}

impl Provision {
    /// It can: `create` makes the fixture of a case.
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
    /// It cannot, for this reason.
    #[must_use]
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable(reason.into())
    }
}
