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

/// A server that tests need. An environment variable contains the URL of the server.
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
    /// Describes a server. `name` identifies the server in `RATCHET_REQUIRE` (see [`is_required`]).
    /// `variable` is the environment variable that contains the URL of the server.
    #[must_use]
    pub const fn new(name: &'static str, variable: &'static str) -> Self {
        Self { name, variable }
    }

    /// Returns the URL of the server, or `None` if the environment variable is not set.
    #[must_use]
    pub fn url(self) -> Option<String> {
        env::var(self.variable).ok()
    }

    /// Returns the reason why tests that need the server cannot run: its environment variable is
    /// not set.
    #[must_use]
    pub fn missing(self) -> String {
        format!("the environment variable {} is not set", self.variable)
    }

    /// Returns [`Provision::Ready`] if the environment variable of the server is set. The suite
    /// then calls `create` with the URL of the server to create the fixture of each case. Returns
    /// [`Provision::Unavailable`] if the variable is not set.
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

    /// Does the same as [`provision`](Self::provision), but for a
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

/// An empty database, or an empty part of a database, in which one test runs.
#[async_trait]
pub trait TestDatabase: Sized + Send + Sync + 'static {
    /// Creates an empty database on the server at `url`.
    ///
    /// # Errors
    /// Any error. The test then fails.
    async fn create(url: &str) -> Result<Self, BoxError>;

    /// Removes the database, or keeps it for a later test. This method is called after the test,
    /// even if the test panicked.
    async fn take_away(&self);
}

/// A test function. Its argument is the [`TestDatabase`] in which the test runs.
pub type DatabaseTest<P> = fn(Arc<P>) -> BoxFuture<'static, ()>;

/// Creates a list of tests for [`DatabaseTests`] from the names of modules and of test functions.
///
/// For example, `database_tests! { links: a_test another_test; locks: a_third; }` contains the test
/// functions `links::a_test`, `links::another_test` and `locks::a_third`. The list has the type
/// `&[(&str, DatabaseTest<_>)]`, with the name of each test first.
#[macro_export]
macro_rules! database_tests {
    ($($module:ident: $($name:ident)*;)*) => {
        &[$($(
            (
                concat!(stringify!($module), "::", stringify!($name)),
                |database| Box::pin($module::$name(database)),
            ),
        )*)*]
    };
}

/// Runs the tests of a test binary, each in a separate [`TestDatabase`].
///
/// If the server of a test is not available, the test is ignored. If that server is
/// [required](crate::is_required), the test fails instead.
///
/// ```no_run
/// # use std::process::ExitCode;
/// # use std::sync::Arc;
/// # use ratchet_conformance::BoxError;
/// use ratchet_conformance::{
///     DatabaseTest, DatabaseTests, TestDatabase, TestServer, database_tests,
/// };
/// # struct Schema;
/// # #[async_trait::async_trait]
/// # impl TestDatabase for Schema {
/// #     async fn create(_: &str) -> Result<Self, BoxError> { Ok(Self) }
/// #     async fn take_away(&self) {}
/// # }
/// # mod locks { pub(crate) async fn a_lock_ends(_: std::sync::Arc<super::Schema>) {} }
///
/// const SERVER: TestServer = TestServer::new("mystore", "MYSTORE_TEST_URL");
///
/// const TESTS: &[(&str, DatabaseTest<Schema>)] = database_tests! { locks: a_lock_ends; };
///
/// fn main() -> ExitCode {
///     DatabaseTests::default().on(SERVER, TESTS).run()
/// }
/// ```
#[derive(Default)]
#[expect(
    missing_debug_implementations,
    reason = "a trial holds a function, which has no Debug \
        form"
)]
pub struct DatabaseTests {
    trials: Vec<Trial>,
    missing: Vec<String>,
}

impl DatabaseTests {
    /// Adds tests, each of which runs in a separate database on `server`.
    #[must_use]
    pub fn on<P: TestDatabase>(
        mut self,
        server: TestServer,
        tests: &[(&'static str, DatabaseTest<P>)],
    ) -> Self {
        let url = server.url();
        let ignored = url.is_none() && !is_required(server.name);
        for (name, test) in tests {
            let (url, test) = (url.clone(), *test);
            let run = move || run_in_database(&url.ok_or_else(|| server.missing())?, test);
            self.trials
                .push(Trial::test(*name, run).with_ignored_flag(ignored));
        }
        self.note_missing(server);
        self
    }

    /// Declares that the tests of `module` also need `server`. This affects only tests that were
    /// added before this call.
    ///
    /// If the server is not available, these tests are ignored. If the server is
    /// [required](crate::is_required), these tests fail instead.
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

    /// Runs the tests that the command-line arguments select. Returns the exit code for `main`.
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

/// Creates a database, runs a test in it, and removes the database. Uses a separate runtime with
/// two threads.
fn run_in_database<P: TestDatabase>(url: &str, test: DatabaseTest<P>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let database = match P::create(url).await {
            Ok(database) => Arc::new(database),
            Err(error) => return Err(error.to_string().into()),
        };
        let ended = tokio::spawn(test(Arc::clone(&database))).await;
        database.take_away().await;
        ended.map_err(|_| Failed::without_message())
    })
}
