use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::memory::ManualClock;
use ratchet_core::store::{Checked, StoreFeature};
use ratchet_core::{NewJob, SharedStore};

use crate::Power;
use crate::app::Application;
use crate::fixture::{BoxError, Factory, Fixture, TestClock, Vandal};
use crate::node::TestNode;
use crate::notes::Notes;
use crate::process::{self, Line};
use crate::repeat::Repeating;
use crate::runner::Context;
use crate::suite::Settings;

/// The argument of a test case for stores. It gives the case access to a new, empty database.
pub struct Cx {
    fixture: Arc<dyn Fixture>,
    factory: Factory,
    powers: Vec<Power>,
    settings: Settings,
    notes: Arc<Notes>,
    /// Additional databases that the case created and has not closed. The suite removes them after
    /// the case.
    others: Mutex<Vec<Arc<dyn Fixture>>>,
}

impl Cx {
    pub(crate) async fn create(
        factory: Factory,
        powers: Vec<Power>,
        settings: Settings,
    ) -> Result<Self, BoxError> {
        Self::create_noting(factory, powers, settings, Arc::default()).await
    }

    async fn create_noting(
        factory: Factory,
        powers: Vec<Power>,
        settings: Settings,
        notes: Arc<Notes>,
    ) -> Result<Self, BoxError> {
        let fixture = factory.create().await?;
        let has = |power| match power {
            Power::Clock => fixture.clock().is_some(),
            Power::Vandal => fixture.vandal().is_some(),
            Power::Residue => fixture.residue().is_some(),
            Power::Restart => fixture.restart().is_some(),
            Power::Processes => fixture.address().is_some(),
            Power::MachineClock => fixture.machine_clock().is_some(),
            Power::Transactions => fixture.transactions().is_some(),
            // Powers of the store are visible only on an opened store, so `node` checks them.
            Power::RowLocks
            | Power::Recurring
            | Power::Archive
            | Power::Permits
            | Power::Rates
            | Power::Workflows
            | Power::Signals
            | Power::Diagnostics
            | Power::Lanes
            | Power::Tags
            | Power::IdempotencyKeys
            | Power::FairKeys
            | Power::Guards => powers.contains(&power),
            Power::Delivery | Power::Outage => false,
        };
        // If only the fixture had a power, the suite would ignore the cases that need it. If only
        // the suite listed the power, these cases would fail.
        let more = [Power::MachineClock, Power::FairKeys, Power::Transactions];
        let all = Power::STORE.iter().chain(&more);
        let of_fixture = all.map(|power| (*power, has(*power)));
        if let Err(differences) = compare("fixture", of_fixture, &powers) {
            fixture.teardown().await;
            return Err(differences.into());
        }
        Ok(Self {
            fixture,
            factory,
            powers,
            settings,
            notes,
            others: Mutex::default(),
        })
    }

    /// Names the clauses that the following assertions check. If one of these assertions fails, the
    /// report lists these clauses as broken. Before the first call, and after a call with an empty
    /// list, the report lists all clauses of the case.
    pub(crate) fn proving<const N: usize>(&self, clauses: [&'static str; N]) {
        self.notes.proving(&clauses);
    }

    /// Returns whether three quarters of the case's time limit have passed. The case should then
    /// finish.
    pub(crate) fn is_late(&self) -> bool {
        self.notes.is_late()
    }

    /// Opens a new handle on the database and returns a node that uses this handle. The handle
    /// checks the arguments of each call, as the engine does. It also repeats calls that fail
    /// because of contention.
    pub(crate) async fn node(&self) -> TestNode {
        self.node_on(self.fixture.open().await)
    }

    /// Returns a node whose store uses its production clock on a machine with this clock. Panics if
    /// the fixture does not have [`Power::MachineClock`].
    pub(crate) async fn node_with(&self, machine: ManualClock) -> TestNode {
        let machine_clock = self.fixture.machine_clock();
        let machine_clock = machine_clock.expect("the fixture should replace the machine's clock, because the case requires the power MachineClock");
        self.node_on(machine_clock.open(machine).await)
    }

    /// Returns a node on a new handle, and an application that begins transactions in which this
    /// handle enqueues jobs. Panics if the fixture does not have [`Power::Transactions`].
    pub(crate) async fn node_of_application(&self) -> (TestNode, Box<dyn Application>) {
        let transactions = self.fixture.transactions();
        let transactions = transactions.expect(
            "the fixture should begin transactions, because the case requires the power \
             Transactions",
        );
        match transactions.open().await {
            Ok((store, application)) => (self.node_on(Ok(store)), application),
            Err(error) => panic!("the fixture could not open the database: {error}"),
        }
    }

    fn node_on(&self, opened: Result<SharedStore, BoxError>) -> TestNode {
        match opened {
            Ok(store) => {
                let has = |feature| store.lacks(feature).is_none();
                let of_store = [
                    (Power::Recurring, store.recurring().is_some()),
                    (Power::Archive, store.archive().is_some()),
                    (Power::Permits, store.permits().is_some()),
                    (Power::Rates, store.rates().is_some()),
                    (Power::Workflows, store.workflows().is_some()),
                    (Power::Signals, store.signals().is_some()),
                    (Power::Diagnostics, store.diagnostics().is_some()),
                    (Power::Lanes, has(StoreFeature::Lanes)),
                    (Power::Tags, has(StoreFeature::Tags)),
                    (Power::IdempotencyKeys, has(StoreFeature::IdempotencyKeys)),
                    (Power::FairKeys, has(StoreFeature::FairKeys)),
                    (Power::Guards, has(StoreFeature::Guards)),
                ];
                if let Err(differences) = compare("store", of_store, &self.powers) {
                    panic!("{differences}");
                }
                let store = Checked::shared(store);
                TestNode::new(Arc::new(Repeating::layered(store, Arc::clone(&self.notes))))
            }
            Err(error) => panic!("the fixture could not open the database: {error}"),
        }
    }

    /// Returns whether the suite was created with this power.
    pub(crate) fn has(&self, power: Power) -> bool {
        self.powers.contains(&power)
    }

    /// Adds a tag to the job if the store supports tags. Without tags, the store refuses the job.
    pub(crate) fn tagged(&self, job: NewJob, tag: &str) -> NewJob {
        match self.has(Power::Tags) {
            true => job.tag(tag),
            false => job,
        }
    }

    /// Adds an idempotency key to the job if the store supports idempotency keys. Without them, the
    /// store refuses the job.
    pub(crate) fn once(&self, job: NewJob, key: &str) -> NewJob {
        match self.has(Power::IdempotencyKeys) {
            true => job.idempotency_key(key),
            false => job,
        }
    }

    /// Returns the settings of the `differential` cases.
    pub(crate) const fn settings(&self) -> Settings {
        self.settings
    }

    /// Creates `count` nodes, each with a separate handle on the database.
    pub(crate) async fn nodes(&self, count: usize) -> Vec<TestNode> {
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            nodes.push(self.node().await);
        }
        nodes
    }

    /// Creates another empty database. The suite removes it after the case, unless the case
    /// [closes](Self::close) it earlier.
    pub(crate) async fn another(&self) -> Self {
        let (factory, powers) = (self.factory.clone(), self.powers.clone());
        let notes = Arc::clone(&self.notes);
        match Self::create_noting(factory, powers, self.settings, notes).await {
            Ok(other) => {
                let fixture = Arc::clone(&other.fixture);
                self.lock_others().push(fixture);
                other
            }
            Err(error) => panic!("the factory could not create the fixture: {error}"),
        }
    }

    /// Removes a database that [`another`](Self::another) created.
    pub(crate) async fn close(&self, other: Self) {
        self.lock_others()
            .retain(|fixture| !Arc::ptr_eq(fixture, &other.fixture));
        other.fixture.teardown().await;
    }

    /// Returns the fixture of the database, for tasks that open the database themselves.
    pub(crate) fn fixture(&self) -> Arc<dyn Fixture> {
        Arc::clone(&self.fixture)
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.clock().advance(by).await;
    }

    pub(crate) async fn set_back(&self, by: Duration) {
        self.clock().set_back(by).await;
    }

    pub(crate) fn vandal(&self) -> &dyn Vandal {
        let vandal = self.fixture.vandal();
        vandal.expect(
            "the fixture should be able to damage rows, because the case requires the \
             power Vandal",
        )
    }

    /// Returns the number of stored rows that belong to jobs. Panics if the fixture does not have
    /// [`Power::Residue`].
    pub(crate) async fn rows_of_jobs(&self) -> u64 {
        let residue = self.fixture.residue();
        let residue = residue.expect(
            "the fixture should be able to count rows, because the case \
             requires the power Residue",
        );
        match residue.rows_of_jobs().await {
            Ok(rows) => rows,
            Err(error) => panic!("the fixture could not count the rows: {error}"),
        }
    }

    /// Drops these nodes, restarts everything that uses the database, and returns a node with a new
    /// handle. Panics if the fixture does not have [`Power::Restart`].
    pub(crate) async fn restart<const N: usize>(&self, nodes: [TestNode; N]) -> TestNode {
        self.end_processes(nodes).await;
        self.node().await
    }

    /// Drops these nodes, and ends everything that uses the database. Panics if the fixture does
    /// not have [`Power::Restart`].
    pub(crate) async fn end_processes<const N: usize>(&self, nodes: [TestNode; N]) {
        drop(nodes);
        let restart = self.fixture.restart();
        let restart = restart.expect(
            "the fixture should be able to restart, because the case requires the power Restart",
        );
        if let Err(error) = restart.end_processes().await {
            panic!("the fixture could not close the database: {error}");
        }
    }

    /// Drops `node`, and lets another process work on the database until it is killed after
    /// `settlements` settlements. Returns what that process did. Panics if the fixture does not
    /// have [`Power::Processes`] and [`Power::Restart`].
    pub(crate) async fn run_and_kill(&self, node: TestNode, settlements: usize) -> Vec<Line> {
        self.end_processes([node]).await;
        let address = self.fixture.address();
        let address = address.expect(
            "the fixture should have an address, because the case requires the power Processes",
        );
        process::run_and_kill(&address, settlements).await
    }

    fn clock(&self) -> &dyn TestClock {
        let clock = self.fixture.clock();
        clock.expect("the fixture should have a clock, because the case requires the power Clock")
    }

    fn lock_others(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn Fixture>>> {
        self.others
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Compares the powers of the fixture or the store with the powers that the suite was given.
///
/// # Errors
/// A text that names every difference.
fn compare(
    who: &str,
    powers: impl IntoIterator<Item = (Power, bool)>,
    given: &[Power],
) -> Result<(), String> {
    let difference = |(power, has): (Power, bool)| match (has, given.contains(&power)) {
        (true, false) => Some(format!(
            "the {who} has the power {power:?}, but the suite does not list it"
        )),
        (false, true) => Some(format!(
            "the suite lists the power {power:?}, but the {who} lacks it"
        )),
        _ => None,
    };
    let differences: Vec<String> = powers.into_iter().filter_map(difference).collect();
    match differences.is_empty() {
        true => Ok(()),
        false => Err(differences.join("; ")),
    }
}

#[async_trait]
impl Context for Cx {
    async fn clean_up(&self) {
        let others = std::mem::take(&mut *self.lock_others());
        for other in others {
            other.teardown().await;
        }
        self.fixture.teardown().await;
    }

    fn notes(&self) -> &Notes {
        &self.notes
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cx")
    }
}
