//! Keeps the results of the last background reads, and derives the overview and readiness from
//! them.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::cluster::Leader;
use ratchet_core::model::{DueRoute, JobRecord, NodeRecord, QueueInfo};
use ratchet_core::stranded::stranded;
use ratchet_core::throughput::Meter;
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{JobState, Name};
use tokio::time::Instant;

use super::FRESH;
use super::failures::Failures;
use super::queues::{Counted, Queues};
use super::series::{Ring, STEP};
use crate::view::{self, At, ChangedNodes, Counts, Overview, Point, Rates};

/// The time for which jobs must be stranded before `/ready` fails. A job is stranded if it is due
/// and no live node can run it. During a rolling deploy, jobs may be stranded for a shorter time.
const STRANDED_FOR: Duration = Duration::from_secs(30);

/// The number of reads in a row that must fail before the database counts as unreachable. A single
/// read may fail by chance.
pub(super) const AWAY_AFTER: u32 = 2;

/// The maximum age of the last successful read of the nodes. If the last read is older, the
/// database counts as unreachable.
///
/// This time is longer than the longest pause between two reads. It is needed in addition to the
/// count of failures, because reads may also stop without failing.
const TRUSTED: Duration = Duration::from_secs(30);

/// The nodes and leaders that one read found.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) leaders: Vec<Leader>,
    /// The versions of the configured namespaces, in the order of the namespaces.
    pub(crate) versions: Vec<u64>,
    /// The time of the read by the database's clock.
    pub(crate) at: Timestamp,
    /// The time of the read by this process's clock.
    pub(crate) read_at: Instant,
}

/// The due routes that one read found. A route is a queue, a kind, a capability and a permit; it is
/// due if one of its jobs is due.
#[derive(Clone, Debug)]
struct Due {
    routes: Vec<DueRoute>,
    at: Timestamp,
}

/// The conditions on which readiness depends, apart from the node's own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fitness {
    /// Whether the database is reachable.
    pub(crate) database: bool,
    /// Whether jobs have been stranded for at least [`STRANDED_FOR`].
    pub(crate) stranded: bool,
    /// Whether jobs are due while no node is live.
    pub(crate) nothing_runs: bool,
}

/// The results of the last background reads.
#[derive(Debug, Default)]
pub(super) struct Board {
    cluster: Option<Arc<Cluster>>,
    /// Number of failed reads of the nodes since the last successful one.
    failures: u32,
    due: Option<Due>,
    /// Number of failed reads of the due routes since the last successful one.
    due_failures: u32,
    stranded: Vec<DueRoute>,
    stranded_since: Option<Instant>,
    /// Whether jobs are due while no node is live.
    ///
    /// Only a read of the nodes sets this to true. A read of the due routes does not, because a
    /// node may have joined since the last read of the nodes.
    nothing_runs: bool,
    queues: Queues,
    dead: Failures,
    meter: Meter,
    ring: Ring,
    last_point: Option<Instant>,
}

impl Board {
    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.as_ref()
    }

    /// Stores a read of the nodes and leaders. Returns an event if a node was added or removed, or
    /// if the status of a node or the leader of a role has changed.
    pub(super) fn read_cluster(&mut self, cluster: Cluster) -> Option<ChangedNodes> {
        let same = |before: &Arc<Cluster>| before.membership() == cluster.membership();
        let changed = (!self.cluster.as_ref().is_some_and(same)).then(|| ChangedNodes {
            at: At(cluster.at),
            live_nodes: cluster.live().count(),
        });
        self.failures = 0;
        self.meter.read(cluster.live());
        self.dead.heard(&cluster.nodes);
        // While the due routes are not known, `nothing_runs` keeps its value until a node is live.
        let needed = match self.due {
            Some(_) => self.is_anything_due(),
            None => self.nothing_runs,
        };
        self.nothing_runs = needed && cluster.live().next().is_none();
        self.cluster = Some(Arc::new(cluster));
        changed
    }

    pub(super) fn cluster_failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Stores a read of the due routes that began at `began`, and determines the stranded routes.
    pub(super) fn read_due(&mut self, routes: Vec<DueRoute>, began: Instant) {
        let Some(cluster) = &self.cluster else {
            return;
        };
        let live: Vec<NodeRecord> = cluster.live().cloned().collect();
        let at = cluster.now();
        self.stranded = stranded(&routes, &live);
        self.queues.read_due(&routes, began);
        self.due = Some(Due { routes, at });
        self.due_failures = 0;
        self.nothing_runs &= self.is_anything_due();
        if self.stranded.is_empty() {
            self.stranded_since = None;
        } else {
            self.stranded_since.get_or_insert_with(time::monotonic);
        }
    }

    /// Counts a failed read of the due routes. After [`AWAY_AFTER`] failures in a row, the due
    /// routes count as unknown. The value of `nothing_runs` does not change.
    pub(super) fn due_failed(&mut self) {
        self.due_failures = self.due_failures.saturating_add(1);
        if self.due_failures >= AWAY_AFTER {
            self.forget_due();
        }
    }

    /// Begins a new period of reads after a time without reads. Forgets the earlier results that
    /// are no longer valid.
    pub(super) fn begin(&mut self) {
        self.forget_due();
        self.nothing_runs = false;
        self.failures = 0;
        self.due_failures = 0;
    }

    fn forget_due(&mut self) {
        self.due = None;
        self.stranded.clear();
        self.stranded_since = None;
    }

    /// Stores a count of the jobs of all queues. The count began at `began`.
    pub(super) fn read_counts(&mut self, queues: Vec<QueueInfo>, began: Instant) {
        let Some(at) = self.cluster.as_ref().map(|cluster| cluster.now()) else {
            return;
        };
        let failed = queues
            .iter()
            .map(|queue| queue.counts.get(&JobState::Failed));
        self.dead.counted(failed.flatten().sum());
        self.queues.read_counts(Counted { queues, at, began });
    }

    /// Records that this API paused or resumed a queue.
    pub(super) fn queue_paused(&mut self, name: &Name, paused: bool) {
        self.queues.made(name, paused);
    }

    /// Returns the state of the reads of the newest dead letters.
    pub(super) fn failures(&mut self) -> &mut Failures {
        &mut self.dead
    }

    /// Stores a read of the newest dead letters. Returns an event if they have changed.
    pub(super) fn read_failures(&mut self, jobs: &[JobRecord]) -> Option<view::Failures> {
        let Some(at) = self.cluster.as_ref().map(|cluster| cluster.now()) else {
            self.dead.failed();
            return None;
        };
        let differ = self.dead.read(jobs, at);
        let (jobs, at) = self.dead.kept().filter(|_| differ)?;
        Some(view::Failures::new(at, jobs))
    }

    /// Returns whether [`fitness`](Self::fitness) is known. It is known if the nodes were read
    /// recently and a read of the due routes has succeeded or failed. It is also known if the last
    /// [`AWAY_AFTER`] reads of the nodes failed.
    pub(super) fn is_fitness_known(&self) -> bool {
        let read = self.cluster.as_ref();
        let is_recent = read.is_some_and(|cluster| cluster.age() <= TRUSTED);
        (is_recent && self.is_due_read()) || self.failures >= AWAY_AFTER
    }

    /// Returns true if the due routes are known, or if the last read of the due routes failed.
    pub(super) const fn is_due_read(&self) -> bool {
        self.due.is_some() || self.due_failures > 0
    }

    pub(super) fn fitness(&self) -> Fitness {
        let long = |since: Instant| time::monotonic() >= since + STRANDED_FOR;
        Fitness {
            database: self.failures < AWAY_AFTER
                && (self.cluster.as_ref()).is_some_and(|cluster| cluster.age() <= TRUSTED),
            stranded: self.stranded_since.is_some_and(long),
            nothing_runs: self.nothing_runs,
        }
    }

    /// Returns whether no node is live although jobs are due that are not paused. The
    /// overview, the readiness probe and the metric all use this value.
    pub(super) const fn nothing_runs(&self) -> bool {
        self.nothing_runs
    }

    fn is_anything_due(&self) -> bool {
        self.due_routes().any(|due| !due.is_paused())
    }

    /// Adds a point to the history if the last point is at least [`STEP`] old.
    pub(super) fn plot(&mut self) {
        let now = time::monotonic();
        if self.last_point.is_some_and(|last| now < last + STEP) {
            return;
        }
        let Some(overview) = self.overview() else {
            return;
        };
        self.last_point = Some(now);
        let mut point = Point::new(overview.at);
        point.rates = overview.rates;
        point.pending = self.queues.pending();
        point.running = overview.running;
        point.overdue_ms = self
            .due
            .is_some()
            .then(|| overview.oldest_due_ms.unwrap_or(0));
        self.ring.push(point);
    }

    /// Returns the summary of the cluster without its history, or `None` before the first read of
    /// the nodes.
    pub(super) fn overview(&self) -> Option<Overview> {
        let cluster = self.cluster.as_ref()?;
        let live: Vec<&NodeRecord> = cluster.live().collect();
        let sum = |of: fn(&NodeRecord) -> u32| live.iter().map(|node| u64::from(of(node))).sum();
        let (counts, counts_at) = self.queues.totals(None).unzip();
        let (failures, failures_at) = self.dead.kept().unzip();
        let may_run = self.due_routes().filter(|due| !due.is_paused());
        Some(Overview {
            at: At(cluster.now()),
            read_at: At(cluster.at),
            stale: cluster.age() > FRESH || self.failures >= AWAY_AFTER,
            live_nodes: live.len(),
            running: sum(|node| node.load.running),
            capacity: sum(|node| node.load.capacity),
            counts,
            counts_at,
            oldest_due_ms: may_run.map(|due| view::millis(due.overdue)).max(),
            due_at: self.due.as_ref().map(|due| At(due.at)),
            rates: self.rates(),
            series: view::Series::default(),
            stranded: self.stranded.iter().map(Into::into).collect(),
            nothing_runs: self.nothing_runs,
            leaders: cluster.leaders(),
            failures,
            failures_at,
        })
    }

    fn due_routes(&self) -> impl Iterator<Item = &DueRoute> {
        self.due.iter().flat_map(|due| &due.routes)
    }

    fn rates(&self) -> Rates {
        self.meter.throughput().map(Rates::from).unwrap_or_default()
    }

    pub(super) fn series(&self) -> view::Series {
        self.ring.series()
    }

    /// Returns the last count of jobs by state, and the time of the count. If `queue` is given, the
    /// count includes only this queue.
    pub(super) fn counts(&self, queue: Option<&Name>) -> Option<(Counts, At)> {
        self.queues.totals(queue)
    }

    /// Returns the queues, each with the time since its longest-overdue job became due.
    pub(super) fn queues(&self) -> view::Queues {
        let due = self.due.as_ref();
        self.queues.view(due.map(|due| (&*due.routes, due.at)))
    }
}

impl Cluster {
    /// Returns the time that has passed since the read.
    pub(crate) fn age(&self) -> Duration {
        time::monotonic().saturating_duration_since(self.read_at)
    }

    /// Returns the current time of the database's clock, estimated from the time of the read.
    pub(crate) fn now(&self) -> Timestamp {
        time::add(self.at, self.age())
    }

    /// Returns the nodes that were live when they were read.
    pub(crate) fn live(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes
            .iter()
            .filter(|node| view::is_live(node, self.at))
    }

    /// Returns the current leader of each role, in one entry for each role. If the lease of a
    /// leader has expired since the read, the role has no leader.
    pub(crate) fn leaders(&self) -> Vec<view::Leader> {
        let age = self.age();
        let leaders = self.leaders.iter().map(|leader| {
            let left = leader.remaining.and_then(|left| left.checked_sub(age));
            let node = leader.node.filter(|_| left.is_some());
            let record = node.and_then(|node| self.nodes.iter().find(|one| one.node == node));
            view::Leader::new(
                leader.role.to_string(),
                node.map(|node| node.to_string()),
                record.map(|record| record.label.to_string()),
                leader.term.0,
                left.map(view::millis),
            )
        });
        leaders.collect()
    }

    /// Returns the values whose change causes a `nodes` event: the nodes, their statuses, and the
    /// leaders.
    fn membership(&self) -> (Vec<impl PartialEq + use<>>, Vec<impl PartialEq + use<>>) {
        let nodes = self.nodes.iter();
        let nodes = nodes.map(|node| (node.node, node.status, view::is_live(node, self.at)));
        let leaders = self.leaders.iter();
        let leaders = leaders.map(|one| (one.role.clone(), one.node, one.term));
        (nodes.collect(), leaders.collect())
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::model::{Heartbeat, NodeLoad, NodeStatus, NodeTotals};
    use ratchet_core::store::{HeldLock, LockInfo};
    use ratchet_core::{Fence, NodeId, Route};

    use super::*;

    /// Returns a read at the time `at` that found one node, whose last heartbeat was at the time
    /// `beat`.
    fn reading(at: i64, node: NodeId, beat: i64, succeeded: u64) -> Cluster {
        let label = Name::new("label", "n").unwrap();
        let mut load = NodeLoad::new(0, 1);
        load.totals = Some(NodeTotals::new(succeeded, 0, succeeded, 0, 0));
        let heartbeat = Heartbeat::new(node, label, NodeStatus::Active, Duration::from_secs(5));
        Cluster {
            nodes: vec![NodeRecord::joined(
                &heartbeat.load(load),
                time::from_millis(beat),
            )],
            leaders: Vec::new(),
            versions: Vec::new(),
            at: time::from_millis(at),
            read_at: time::monotonic(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_for_too_long_does_nothing_any_more() {
        let (mut board, node) = (Board::default(), NodeId::new());
        board.read_cluster(reading(0, node, 0, 0));
        board.read_cluster(reading(5_000, node, 5_000, 50));
        assert!(board.overview().unwrap().rates.finished_per_s > 9.0);
        board.read_cluster(reading(3_600_000, node, 5_000, 50));
        assert_eq!(board.overview().unwrap().rates, Rates::default());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_reading_is_said_to_be_old_and_not_trusted_for_long() {
        let mut board = Board::default();
        board.read_cluster(reading(1_000, NodeId::new(), 0, 0));
        assert!(board.fitness().database);
        tokio::time::advance(Duration::from_secs(8)).await;
        let overview = board.overview().unwrap();
        assert!(overview.stale && board.fitness().database);
        let at = |millis| At(time::from_millis(millis));
        assert_eq!((overview.read_at, overview.at), (at(1_000), at(9_000)));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(!board.fitness().database);
        board.read_cluster(reading(39_000, NodeId::new(), 39_000, 0));
        assert!(board.fitness().database && !board.overview().unwrap().stale);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_known_is_not_shown_as_none() {
        let mut board = Board::default();
        board.read_cluster(reading(0, NodeId::new(), 0, 0));
        let overview = board.overview().unwrap();
        assert_eq!((overview.counts, overview.due_at), (None, None));
        board.read_due(Vec::new(), time::monotonic());
        assert!(board.overview().unwrap().due_at.is_some());
        board.due_failed();
        assert!(board.overview().unwrap().due_at.is_some());
        board.due_failed();
        assert_eq!(board.overview().unwrap().due_at, None);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_runs_until_a_node_is_live_though_reading_what_is_due_fails() {
        let (mut board, node) = (Board::default(), NodeId::new());
        let route = Route::from_texts("q", "k", "", "").unwrap();
        let route = DueRoute::at(route, false, 0, 60_000);
        board.read_cluster(reading(0, node, 0, 0));
        board.read_due(vec![route], time::monotonic());
        assert!(!board.nothing_runs());
        board.read_cluster(reading(3_600_000, node, 0, 0));
        assert!(board.nothing_runs());
        for _ in 0..3 {
            board.due_failed();
            assert!(board.nothing_runs() && board.fitness().nothing_runs);
            board.read_cluster(reading(3_600_000, node, 0, 0));
            assert!(board.nothing_runs() && board.fitness().nothing_runs);
        }
        board.read_cluster(reading(3_600_000, node, 3_600_000, 0));
        assert!(!board.nothing_runs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_has_run_out_since_it_was_read_leads_no_more() {
        let owner = Name::new("owner", NodeId::new().to_string()).unwrap();
        let lock = LockInfo {
            fence: Fence(7),
            holder: Some(HeldLock {
                owner,
                fence: Fence(7),
                remaining: Duration::from_secs(2),
            }),
            holder_gone: false,
            expired_for: None,
        };
        let cluster = Cluster {
            nodes: Vec::new(),
            leaders: Leader::among(&[(Name::new("lock", "leader/pricing").unwrap(), lock)]),
            versions: Vec::new(),
            at: time::from_millis(0),
            read_at: time::monotonic(),
        };
        tokio::time::advance(Duration::from_millis(1_500)).await;
        let leader = &cluster.leaders()[0];
        assert_eq!(
            (leader.expires_in_ms, leader.node.is_some()),
            (Some(500), true)
        );
        tokio::time::advance(Duration::from_secs(1)).await;
        let leader = &cluster.leaders()[0];
        assert_eq!(
            (leader.expires_in_ms, &leader.node, leader.term),
            (None, &None, 7)
        );
    }
}
