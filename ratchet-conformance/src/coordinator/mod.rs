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

/// An isolated transport for wakeups, created for one test case and removed after that case.
#[async_trait]
pub trait CoordinatorFixture: Send + Sync + 'static {
    /// Connects to the transport, as a separate node would. Every call returns a new coordinator on
    /// the same transport.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError>;

    /// Returns the control that interrupts the transport, or `None` if the fixture cannot interrupt
    /// it. The suite requires this control for [`Power::Outage`]. [`Proxy`] implements [`Outage`]
    /// for TCP.
    fn outage(&self) -> Option<&dyn Outage> {
        None
    }

    /// Removes the transport. The suite calls this method once, after the case, even if the case
    /// panicked.
    async fn teardown(&self) {}
}

/// Interrupts and restores a transport. An interruption affects all current and future connections.
#[async_trait]
pub trait Outage: Send + Sync {
    /// Interrupts the transport until [`mend`](Self::mend) is called. The transport then carries no
    /// data and accepts no connections. The coordinators must be able to detect the interruption.
    async fn cut(&self);

    /// Interrupts the transport without a sign until [`mend`](Self::mend) is called, as a network
    /// does that drops all packets. The connections stay open, but carry no more data, not even
    /// after `mend`. New connections carry no data until `mend`.
    async fn freeze(&self);

    /// Restores the transport. Coordinators can then connect again.
    async fn mend(&self);
}

/// A coordinator that implements [`Clone`] is its own fixture. `connect` returns a clone, which
/// must use the same transport.
#[async_trait]
impl<C: ClusterCoordinator + Clone> CoordinatorFixture for C {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        Ok(Arc::new(self.clone()))
    }
}

/// Creates a [`CoordinatorFixture`] for each case.
#[derive(Clone)]
pub struct CoordinatorFactory(Arc<Create>);

type Create = dyn Fn() -> BoxFuture<'static, Made> + Send + Sync;
type Made = Result<Box<dyn CoordinatorFixture>, BoxError>;

impl CoordinatorFactory {
    /// Creates a factory that calls `create` once for every case. `create` returns the fixture of
    /// the case.
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

/// The conformance suite for coordinators.
///
/// The powers that the suite is given must match the powers of the coordinator and its fixture:
/// - A coordinator that delivers no wakeups has no powers.
/// - Every other coordinator has [`Power::Delivery`].
/// - A coordinator also has [`Power::Outage`] if its fixture can interrupt the transport. This is
///   not the case for a coordinator within one process.
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
    /// Creates the suite for the coordinator called `name`. The coordinator and its fixture must
    /// have exactly the powers in `powers`.
    #[must_use]
    pub fn new(name: impl Into<String>, powers: &[Power]) -> Self {
        Self {
            name: name.into(),
            powers: powers.to_vec(),
        }
    }

    /// Lists or runs the cases that the command-line arguments select. Each case runs on a new
    /// fixture. Returns the exit code for `main`.
    pub fn run(self, provision: impl Future<Output = Provision<CoordinatorFactory>>) -> ExitCode {
        let provision = match runner::runtime().block_on(provision) {
            Provision::Ready(factory) => Provision::Ready(setup(factory, self.powers.clone())),
            Provision::Unavailable(reason) => Provision::Unavailable(reason),
        };
        let subject = Subject::new(self.name, self.powers, Vec::new());
        trials::run(subject, &cases::SETUP, Self::cases(), &provision)
    }

    /// Returns all cases for coordinators.
    pub fn cases() -> impl Iterator<Item = &'static Case<Transport>> {
        cases::CASES.iter()
    }

    /// Returns the case with the name `full_name`, or `None` if there is no such case. A full name
    /// consists of a group and a case, such as `wakeup::nothing_comes_that_was_not_sent`.
    #[must_use]
    pub fn case(full_name: &str) -> Option<&'static Case<Transport>> {
        Self::cases().find(|case| case.full_name() == full_name)
    }

    /// Runs one case on a new fixture that has exactly these powers. Intended for tests of the
    /// suite itself.
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

/// The argument of a test case for coordinators. It gives the case access to a new transport.
pub struct Transport {
    fixture: Box<dyn CoordinatorFixture>,
    notes: Notes,
}

impl Transport {
    async fn new(fixture: Box<dyn CoordinatorFixture>, powers: &[Power]) -> Result<Self, BoxError> {
        // If only the fixture had the power, the suite would ignore the cases that need it. If only
        // the suite listed the power, these cases would fail.
        if fixture.outage().is_some() != powers.contains(&Power::Outage) {
            fixture.teardown().await;
            return Err(
                "the suite lists the power Outage and the fixture lacks it, or the fixture \
                 has it and the suite does not list it"
                    .into(),
            );
        }
        Ok(Self {
            fixture,
            notes: Notes::default(),
        })
    }

    fn outage(&self) -> &dyn Outage {
        let outage = self.fixture.outage();
        outage.expect(
            "the fixture should have an outage, because the case requires the power \
             Outage",
        )
    }

    async fn connect(&self) -> Arc<dyn ClusterCoordinator> {
        match self.fixture.connect().await {
            Ok(coordinator) => coordinator,
            Err(error) => panic!("the fixture could not connect the coordinator: {error}"),
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
