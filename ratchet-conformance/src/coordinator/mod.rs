//! The suite for [`ClusterCoordinator`]s.

pub(crate) mod cases;
mod proxy;

pub use proxy::Proxy;

use std::fmt;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::cluster::ClusterCoordinator;

use crate::fixture::BoxError;
use crate::notes::Notes;
use crate::runner::{self, Context, Failure, Setup};
use crate::trials::{self, Subject};
use crate::{Case, Power, Provision};

/// A separate transport, created for one case and removed after that case.
#[async_trait]
pub trait CoordinatorFixture: Send + Sync + 'static {
    /// Connects once more, as another node would. Every call returns a separate coordinator on the
    /// same transport.
    ///
    /// # Errors
    /// Any error; it fails the case.
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError>;

    /// Returns the control that interrupts the transport, for [`Power::Outage`]. [`Proxy`]
    /// implements it for TCP.
    fn outage(&self) -> Option<&dyn Outage> {
        None
    }

    /// Removes the transport. The suite calls this once, even if the case panicked.
    async fn teardown(&self) {}
}

/// Interrupts a transport for all its current and future connections, and restores it.
#[async_trait]
pub trait Outage: Send + Sync {
    /// Interrupts the transport, so that it carries nothing and accepts no connections. The
    /// coordinators can detect this.
    async fn cut(&self);

    /// Restores the transport: coordinators can connect again.
    async fn mend(&self);
}

/// A coordinator whose clones share its transport is its own fixture.
#[async_trait]
impl<C: ClusterCoordinator + Clone> CoordinatorFixture for C {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        Ok(Arc::new(self.clone()))
    }
}

/// Creates coordinator fixtures.
#[derive(Clone)]
pub struct CoordinatorFactory(Arc<Create>);

type Create = dyn Fn() -> BoxFuture<'static, Made> + Send + Sync;
type Made = Result<Box<dyn CoordinatorFixture>, BoxError>;

impl CoordinatorFactory {
    /// Creates a factory that calls `create` for every case.
    pub fn new<F, Making, X>(create: F) -> Self
    where
        F: Fn() -> Making + Send + Sync + 'static,
        Making: Future<Output = Result<X, BoxError>> + Send + 'static,
        X: CoordinatorFixture,
    {
        Self(Arc::new(move || {
            let made = create();
            Box::pin(async move { Ok(Box::new(made.await?) as Box<dyn CoordinatorFixture>) })
        }))
    }
}

impl fmt::Debug for CoordinatorFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoordinatorFactory")
    }
}

/// The suite for coordinators.
///
/// A coordinator that carries nothing has no powers. Every other has [`Power::Delivery`], and also
/// [`Power::Outage`] if its fixture can cut the transport. A coordinator within one process has no
/// transport to cut.
///
/// ```no_run
/// use ratchet_conformance::{CoordinatorFactory, CoordinatorSuite, Power, Provision};
/// use ratchet_core::cluster::InProcessCoordinator;
///
/// fn main() -> std::process::ExitCode {
///     let factory = CoordinatorFactory::new(|| async { Ok(InProcessCoordinator::new()) });
///     CoordinatorSuite::new("in-process", &[Power::Delivery])
///         .run(async { Provision::Ready(factory) })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CoordinatorSuite {
    name: String,
    powers: Vec<Power>,
}

impl CoordinatorSuite {
    /// Creates the suite for the coordinator called `name`, with exactly these powers.
    #[must_use]
    pub fn new(name: impl Into<String>, powers: &[Power]) -> Self {
        Self {
            name: name.into(),
            powers: powers.to_vec(),
        }
    }

    /// Lists or runs the cases as the command line selects, each on a new fixture.
    pub fn run(self, provision: impl Future<Output = Provision<CoordinatorFactory>>) -> ExitCode {
        let provision = match runner::runtime().block_on(provision) {
            Provision::Ready(factory) => Provision::Ready(setup(factory, self.powers.clone())),
            Provision::Unavailable(reason) => Provision::Unavailable(reason),
        };
        let subject = Subject::new(self.name, self.powers, Vec::new());
        trials::run(subject, Self::cases(), &provision)
    }

    /// Returns every case.
    pub fn cases() -> impl Iterator<Item = &'static Case<Transport>> {
        cases::CASES.iter()
    }

    /// Returns the case with this full name, such as `wakeup::nothing_comes_that_was_not_sent`.
    #[must_use]
    pub fn case(full_name: &str) -> Option<&'static Case<Transport>> {
        Self::cases().find(|case| case.full_name() == full_name)
    }

    /// Runs one case on a new fixture with these powers, for tests of the suite itself.
    ///
    /// # Errors
    /// The reason why the case failed.
    pub async fn check(
        case: &Case<Transport>,
        powers: &[Power],
        factory: CoordinatorFactory,
    ) -> Result<(), Failure> {
        let setup = setup(factory, powers.to_vec());
        runner::run_case(case, &*setup).await.outcome
    }
}

fn setup(factory: CoordinatorFactory, powers: Vec<Power>) -> Arc<Setup<Transport>> {
    Arc::new(move || {
        let (made, powers) = ((factory.0)(), powers.clone());
        Box::pin(async move { Transport::new(made.await?, &powers).await })
    })
}

/// The argument of a case for coordinators: a new transport.
pub struct Transport {
    fixture: Box<dyn CoordinatorFixture>,
    notes: Notes,
}

impl Transport {
    async fn new(fixture: Box<dyn CoordinatorFixture>, powers: &[Power]) -> Result<Self, BoxError> {
        // If only the fixture had the power, the cases that need it would be ignored. If only the
        // suite listed it, they would fail.
        if fixture.outage().is_some() != powers.contains(&Power::Outage) {
            fixture.teardown().await;
            return Err("the powers of the suite and of the fixture differ in Outage".into());
        }
        Ok(Self {
            fixture,
            notes: Notes::default(),
        })
    }

    fn outage(&self) -> &dyn Outage {
        let outage = self.fixture.outage();
        outage.expect("the case says that it needs Outage")
    }

    async fn connect(&self) -> Arc<dyn ClusterCoordinator> {
        match self.fixture.connect().await {
            Ok(coordinator) => coordinator,
            Err(error) => panic!("the coordinator cannot connect: {error}"),
        }
    }
}

#[async_trait]
impl Context for Transport {
    async fn clean_up(&self) {
        self.fixture.teardown().await;
    }

    fn notes(&self) -> &Notes {
        &self.notes
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}
