//! The conformance suite: tests that every Ratchet store and every coordinator must pass.
//!
//! The traits of [`ratchet_core::store`] document their contract as clauses such as
//! `[claim.order]`. Each case of the suite proves one or more clauses, and each clause has at least
//! one case. A test of this crate compares the clauses of the cases with those of the
//! documentation. Most cases open the database several times, as the nodes of a cluster do. The
//! `differential` group runs random histories of calls, and compares the results with
//! [`MemoryStore`](ratchet_core::MemoryStore), the executable specification.
//!
//! # Running it on a store
//! Add a test without a harness to the store's `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! ratchet-conformance = { git = "…" }
//!
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! Then write a [`Fixture`], which creates one empty database per case, and a `main`:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use ratchet_conformance::{BoxError, Fixture, Suite, TestServer};
//! use ratchet_core::SharedStore;
//! # struct Database; impl Database {
//! #     async fn create(_: &str) -> Result<Self, BoxError> { Ok(Self) }
//! #     async fn connect(&self) -> Result<ratchet_core::MemoryStore, BoxError> { Ok(Default::default()) }
//! #     async fn drop(&self) {}
//! # }
//!
//! struct EmptyDatabase(Database);
//!
//! #[async_trait]
//! impl Fixture for EmptyDatabase {
//!     async fn open(&self) -> Result<SharedStore, BoxError> {
//!         Ok(Arc::new(self.0.connect().await?))
//!     }
//!
//!     async fn teardown(&self) {
//!         self.0.drop().await;
//!     }
//! }
//!
//! const SERVER: TestServer = TestServer::new("mystore", "MYSTORE_TEST_URL");
//!
//! fn main() -> ExitCode {
//!     Suite::new("mystore", &[]).run(async {
//!         SERVER.provision(|url| async move {
//!             Ok(EmptyDatabase(Database::create(&url).await?))
//!         })
//!     })
//! }
//! ```
//!
//! Every case is then a separate test, for `cargo test` and for nextest:
//!
//! ```text
//! cargo test --test conformance claim::
//! cargo nextest run -E 'binary(conformance)'
//! ```
//!
//! # Powers
//! A [`Power`] is an optional ability of a fixture, a store or a coordinator. With
//! [`Power::Clock`], the cases set the database's clock. Without this power, the suite does not
//! test behavior that depends on time, so a store should accept a clock in tests. With
//! [`Power::Vandal`], the cases damage rows. With [`Power::Residue`], they count the rows that
//! remain after jobs are deleted. With [`Power::Restart`], they check that the data remains when
//! every process has ended. With [`Power::Processes`], another process uses the database and is
//! killed. With [`Power::MachineClock`], they set the clock of the machine back. With
//! [`Power::Transactions`], they enqueue jobs in transactions of an application. With
//! [`Power::RowLocks`], they check that such a transaction holds up only calls on its own jobs.
//!
//! The optional parts of a store are powers too: [`Power::Recurring`], [`Power::Archive`],
//! [`Power::Permits`], [`Power::Rates`], [`Power::Workflows`], [`Power::Signals`] and
//! [`Power::Diagnostics`]. These powers must match what the store's accessors return. The powers
//! [`Power::Lanes`], [`Power::Tags`], [`Power::IdempotencyKeys`], [`Power::FairKeys`] and
//! [`Power::Guards`] must match [`Store::lacks`](ratchet_core::Store::lacks).
//!
//! If a case needs a power that the suite was not given, the suite lists the case as ignored, with
//! the reason. If the powers of the store and its fixture differ from the powers of the suite, the
//! suite lists only the case `setup::…`. This case fails, and names the difference.
//!
//! # Other tests of a store
//! [`DatabaseTests`] runs your own tests, each in an empty database. [`kit`] has functions that
//! most of these tests need, and [`Proxy`] makes connections fail.
//!
//! # Results
//! The message of a failure names the store and the clauses that the failed assertion checks. It
//! quotes the [first sentence](sentence) of each clause, and then shows the assertion:
//!
//! ```text
//! mystore breaks [claim.exclusive]
//!   [claim.exclusive] A job is returned to one claimer only, until its claim has ended.
//! assertion `left == right` failed: …
//! ```
//!
//! A failure of the `differential` group lists the fields that differ from the model, such as
//! `jobs[3].state: expected Pending / found Running`. It also shows the shortest failing history
//! that the suite has found.
//!
//! Each case writes a file under `target/ratchet-conformance/`. From these files, [`report::table`]
//! creates a table with the result of each clause on each store. Below the table, it lists the
//! failed cases, and the reasons why cases did not run. `MISSING` means that the database was not
//! available. `N-A` means that a power is missing or the store is exempted.
//!
//! # Exemptions
//! [`Suite::without`] exempts a store from cases that it cannot pass and that have no power.
//! The suite does not run these cases.
//!
//! # Input checks and deadlines
//! The suite wraps each store that a fixture opens in [`Checked`](ratchet_core::store::Checked), as
//! the engine does. So the store itself need not check its input, or end a call at its deadline.
//!
//! # Contention
//! Under load, a call of a store may fail because of a conflict
//! ([`Contention`](ratchet_core::StoreErrorKind::Contention)), or not return in time
//! ([`Timeout`](ratchet_core::StoreErrorKind::Timeout)). As the engine does, the suite then repeats
//! the call, until three quarters of the case's time limit have passed. After a timeout, the suite
//! repeats only idempotent calls: a repetition returns what the first call would have returned. The
//! report counts the repeated calls.
//!
//! # Environment
//! | variable | meaning |
//! |---|---|
//! | `RATCHET_REQUIRE` | `1`, or names of stores: if one of them is unavailable, its tests fail instead of being ignored |
//! | `RATCHET_HISTORIES` | how many random histories the `differential` cases run together; default: what `Suite::histories` sets, or 100 |
//! | `RATCHET_SEED` | the one random history to run: the seed that a failure printed |
//! | `RATCHET_CASE_SECONDS` | how many seconds a case may take; default 240 |
//! | `RATCHET_HISTORY_SECONDS` | how many seconds a `differential` case may take; default 840 |
//! | `RATCHET_REPORT_DIR` | the directory of the results; default `target/ratchet-conformance` |
//!
//! # Stability
//! The functions and traits of this crate are stable, but the cases are not. A new version may have
//! new cases, which may find old bugs.

mod app;
mod build;
mod case;
mod cases;
mod clauses;
mod coordinator;
mod cx;
mod database;
mod fixture;
pub mod kit;
mod memory;
mod node;
mod notes;
mod process;
mod recorder;
mod repeat;
pub mod report;
#[cfg(test)]
mod report_tests;
mod required;
mod runner;
mod slot;
mod suite;
mod trials;

pub use app::{Application, OpenTransaction, Transactions};
pub use case::Case;
pub use clauses::sentence;
pub use coordinator::{
    CoordinatorFactory, CoordinatorFixture, CoordinatorSuite, Outage, Proxy, Transport,
};
pub use cx::Cx;
pub use database::{DatabaseTest, DatabaseTests, TestDatabase, TestServer};
pub use fixture::{
    BoxError, Factory, Fixture, MachineClock, Power, Provision, Residue, Restart, TestClock, Vandal,
};
pub use memory::MemoryFixture;
pub use required::is_required;
pub use runner::Failure;
pub use slot::Slot;
pub use suite::Suite;
