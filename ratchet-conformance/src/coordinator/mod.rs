//! The suite for [`ClusterCoordinator`]s.

mod cases;

use std::fmt;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};

use crate::fixture::BoxError;
use crate::runner::{self, Context, Failure, Setup, Subject};
use crate::{Case, Power, Provision};

/// One transport of its own, made for one case and taken away after it.
#[async_trait]
pub trait CoordinatorFixture: Send + Sync + 'static {
    /// Connects once more, as another node would. Every call gives its own end of the same
    /// transport.
    ///
    /// # Errors
    /// Whatever went wrong; it fails the case.
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError>;

    /// Takes the transport away. Called once, also when the case panicked.
    async fn teardown(&self) {}
}

/// A coordinator whose clones share the transport is its own fixture.
#[async_trait]
impl<C: ClusterCoordinator + Clone> CoordinatorFixture for C {
    async fn connect(&self) -> Result<Arc<dyn ClusterCoordinator>, BoxError> {
        Ok(Arc::new(self.clone()))
    }
}

/// Makes a coordinator fixture, again and again.
#[derive(Clone)]
pub struct CoordinatorFactory(Arc<Create>);

type Create = dyn Fn() -> BoxFuture<'static, Made> + Send + Sync;
type Made = Result<Box<dyn CoordinatorFixture>, BoxError>;

impl CoordinatorFactory {
    /// A factory that calls `create` for every case.
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
/// Its powers are none for a coordinator that carries nothing, or [`Power::Delivery`].
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
    /// The suite for the coordinator called `name`, with exactly these powers.
    #[must_use]
    pub fn new(name: impl Into<String>, powers: &[Power]) -> Self {
        Self {
            name: name.into(),
            powers: powers.to_vec(),
        }
    }

    /// Lists or runs the cases as the command line says, each on a new fixture.
    pub fn run(self, provision: impl Future<Output = Provision<CoordinatorFactory>>) -> ExitCode {
        let provision = match runner::runtime().block_on(provision) {
            Provision::Ready(factory) => Provision::Ready(setup(factory)),
            Provision::Unavailable(reason) => Provision::Unavailable(reason),
        };
        let subject = Subject::new(self.name, self.powers, Vec::new());
        runner::run(subject, Self::cases(), &provision)
    }

    /// Every case.
    pub fn cases() -> impl Iterator<Item = &'static Case<Transport>> {
        cases::CASES.iter()
    }

    /// Runs one case on a new fixture: for tests of the suite itself.
    ///
    /// # Errors
    /// Why the case failed.
    pub async fn check(case: &Case<Transport>, factory: CoordinatorFactory) -> Result<(), Failure> {
        runner::check(case, &*setup(factory)).await
    }
}

fn setup(factory: CoordinatorFactory) -> Arc<Setup<Transport>> {
    Arc::new(move || {
        let made = (factory.0)();
        Box::pin(async move { Ok(Transport(made.await?)) })
    })
}

/// What a case for coordinators is given: a new transport.
pub struct Transport(Box<dyn CoordinatorFixture>);

impl Transport {
    async fn connect(&self) -> Arc<dyn ClusterCoordinator> {
        match self.0.connect().await {
            Ok(coordinator) => coordinator,
            Err(error) => panic!("the coordinator cannot connect: {error}"),
        }
    }
}

#[async_trait]
impl Context for Transport {
    async fn clean_up(&self) {
        self.0.teardown().await;
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

/// Sends a wakeup until it comes: a single one may be lost.
async fn deliver(from: &dyn ClusterCoordinator, wakeup: &Wakeup, to: &mut [WakeupStream]) {
    'subscriptions: for (number, stream) in to.iter_mut().enumerate() {
        for _ in 0..20 {
            from.notify(wakeup.clone()).await;
            // Copies of earlier tries may come, and nothing else.
            if let Ok(got) = tokio::time::timeout(Duration::from_millis(500), stream.next()).await {
                assert_eq!(got, *wakeup);
                continue 'subscriptions;
            }
        }
        panic!("subscription {number} never got the wakeup");
    }
}
