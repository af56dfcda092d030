//! Runs further tests of a store, each in a separate empty database.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::coordinator::{CoordinatorFactory, CoordinatorFixture};
use crate::fixture::{BoxError, Fixture, Provision};
use crate::is_required;

/// A server that tests need, identified by the environment variable that holds its URL.
///
/// ```
/// use ratchet_conformance::TestServer;
///
/// const SERVER: TestServer = TestServer::new("mystore", "MYSTORE_TEST_URL");
/// if SERVER.url().is_none() {
///     println!("{}", SERVER.missing()); // MYSTORE_TEST_URL is not set
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TestServer {
    name: &'static str,
    variable: &'static str,
}

impl TestServer {
    /// Creates a server. `name` is its name in `RATCHET_REQUIRE` (see [`is_required`]), and
    /// `variable` the environment variable that holds its URL.
    #[must_use]
    pub const fn new(name: &'static str, variable: &'static str) -> Self {
        Self { name, variable }
    }

    /// Returns the server's URL, or `None` if the variable is not set.
    #[must_use]
    pub fn url(self) -> Option<String> {
        env::var(self.variable).ok()
    }

    /// Returns the reason why tests that need the server cannot run.
    #[must_use]
    pub fn missing(self) -> String {
        format!("{} is not set", self.variable)
    }

    /// Returns whether the suite can run: if the variable is set, with fixtures that `create`
    /// creates on the server at its URL.
    pub fn provision<Making, X>(
        self,
        create: impl Fn(String) -> Making + Send + Sync + 'static,
    ) -> Provision
    where
        Making: Future<Output = Result<X, BoxError>> + Send + 'static,
        X: Fixture,
    {
        match self.url() {
            Some(url) => Provision::ready(move || create(url.clone())),
            None => Provision::unavailable(self.missing()),
        }
    }

    /// Does the same as [`provision`](Self::provision), for a
    /// [`CoordinatorSuite`](crate::CoordinatorSuite).
    pub fn provision_coordinators<Making, X>(
        self,
        create: impl Fn(String) -> Making + Send + Sync + 'static,
    ) -> Provision<CoordinatorFactory>
    where
        Making: Future<Output = Result<X, BoxError>> + Send + 'static,
        X: CoordinatorFixture,
    {
        match self.url() {
            Some(url) => Provision::Ready(CoordinatorFactory::new(move || create(url.clone()))),
            None => Provision::unavailable(self.missing()),
        }
    }
}

/// An empty database, or an empty part of one, for one test.
#[async_trait]
pub trait Place: Sized + Send + Sync + 'static {
    /// Creates an empty place on the server at this URL.
    ///
    /// # Errors
    /// Any error; it fails the test.
    async fn create(url: &str) -> Result<Self, BoxError>;

    /// Removes the place, or leaves it for a later test. Called after the test, even if it
    /// panicked.
    async fn take_away(&self);
}

/// A test that runs in a place.
pub type PlaceTest<P> = fn(Arc<P>) -> BoxFuture<'static, ()>;

/// Lists tests by module, each with its name, for [`PlaceTests`]:
/// `place_tests! { links: a_test another_test; locks: a_third; }` is a
/// `&[(&str, PlaceTest<_>)]` of the functions `links::a_test` and so on.
#[macro_export]
macro_rules! place_tests {
    ($($module:ident: $($name:ident)*;)*) => {
        &[$($(
            (
                concat!(stringify!($module), "::", stringify!($name)),
                |place| Box::pin($module::$name(place)),
            ),
        )*)*]
    };
}

/// The `main` of a test binary whose tests each run in a separate place.
///
/// If the server is not available, its tests are ignored, or fail if the server is
/// [required](crate::is_required).
///
/// ```no_run
/// # use std::process::ExitCode;
/// # use std::sync::Arc;
/// # use ratchet_conformance::BoxError;
/// use ratchet_conformance::{Place, PlaceTest, PlaceTests, TestServer, place_tests};
/// # struct Schema;
/// # #[async_trait::async_trait]
/// # impl Place for Schema {
/// #     async fn create(_: &str) -> Result<Self, BoxError> { Ok(Self) }
/// #     async fn take_away(&self) {}
/// # }
/// # mod locks { pub(crate) async fn a_lock_ends(_: std::sync::Arc<super::Schema>) {} }
///
/// const SERVER: TestServer = TestServer::new("mystore", "MYSTORE_TEST_URL");
///
/// const TESTS: &[(&str, PlaceTest<Schema>)] = place_tests! { locks: a_lock_ends; };
///
/// fn main() -> ExitCode {
///     PlaceTests::default().on(SERVER, TESTS).run()
/// }
/// ```
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "a trial holds a function")]
pub struct PlaceTests {
    trials: Vec<Trial>,
    missing: Vec<String>,
}

impl PlaceTests {
    /// Adds tests that run on this server.
    #[must_use]
    pub fn on<P: Place>(
        mut self,
        server: TestServer,
        tests: &[(&'static str, PlaceTest<P>)],
    ) -> Self {
        let url = server.url();
        let ignored = url.is_none() && !is_required(server.name);
        for (name, test) in tests {
            let (url, test) = (url.clone(), *test);
            let run = move || run_in_place(&url.ok_or_else(|| server.missing())?, test);
            self.trials
                .push(Trial::test(*name, run).with_ignored_flag(ignored));
        }
        self.note_missing(server);
        self
    }

    /// Ignores the tests of a module, which also need this server, if the server is not available.
    /// They fail instead if the server is [required](crate::is_required).
    #[must_use]
    pub fn needing(mut self, module: &str, server: TestServer) -> Self {
        if server.url().is_none() {
            let ignored = !is_required(server.name);
            let without = |trial: Trial| {
                if !trial.name().starts_with(&format!("{module}::")) {
                    return trial;
                }
                let missing = server.missing();
                Trial::test(trial.name(), move || Err(missing.into())).with_ignored_flag(ignored)
            };
            self.trials = self.trials.into_iter().map(without).collect();
        }
        self.note_missing(server);
        self
    }

    /// Runs the tests that the command line selects.
    #[must_use]
    pub fn run(self) -> ExitCode {
        for missing in &self.missing {
            eprintln!("{missing}");
        }
        libtest_mimic::run(&Arguments::from_args(), self.trials).exit_code()
    }

    fn note_missing(&mut self, server: TestServer) {
        if server.url().is_none() {
            self.missing.push(server.missing());
        }
    }
}

/// Runs a test in a new place, on a separate runtime with two threads, and then removes the place.
fn run_in_place<P: Place>(url: &str, test: PlaceTest<P>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let place = match P::create(url).await {
            Ok(place) => Arc::new(place),
            Err(error) => return Err(error.to_string().into()),
        };
        let ended = tokio::spawn(test(Arc::clone(&place))).await;
        place.take_away().await;
        ended.map_err(|_| Failed::without_message())
    })
}
