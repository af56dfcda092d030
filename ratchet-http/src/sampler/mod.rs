//! Reads the state of the cluster in the background, once for all clients.
//!
//! - The nodes and the due routes are read while clients read, and less often while they only ask
//!   for the readiness, the metrics or the status of the process.
//! - The counts of jobs and the newest dead letters are read only while clients read. The pause
//!   between two such reads grows with the duration of a read, and does not depend on the number of
//!   clients.
//! - The newest jobs are read only while there are listeners.
//!
//! So an API that no client uses reads nothing. A client counts as reading for a minute after each
//! request, and as asking for five minutes. Each kind of read has one loop, so two reads of one
//! kind never run at the same time. Requests use the results of the last reads. Only requests for
//! the nodes, the overview and the readiness wait, for a short time, if the last read of the nodes
//! is too old.

mod board;
mod changes;
mod failures;
mod feed;
mod queues;
mod series;

use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use board::Board;
pub(crate) use board::{Cluster, Fitness};
use changes::Changes;
use feed::Feed;
pub(crate) use feed::{Listener, frame};
use ratchet_core::model::{Detail, JobFilter, PageRequest};
use ratchet_core::{Client, JobState, Name, Result, StoreError, StoreErrorKind, metrics, time};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::ClientAddr;
use crate::problem::{Code, Problem};
use crate::view::{self, At, Counts, Overview};

/// The time for which a client counts as reading after a request.
const LOOKING: Duration = Duration::from_secs(60);
/// The time for which a client counts as asking after a request for the readiness, the metrics or
/// the status. It is longer than the usual intervals of probes and of Prometheus.
const ASKING: Duration = Duration::from_secs(300);
/// The deadline of a background read. Counts of jobs and reads of dead letters have the deadline of
/// the store's calls instead.
const DEADLINE: Duration = Duration::from_secs(3);
/// The intervals between reads of the nodes and leaders.
const CLUSTER: Pace = Pace {
    watched: Duration::from_secs(2),
    asked: Some(Duration::from_secs(5)),
};
/// The intervals between reads of the due routes.
const DUE: Pace = Pace {
    watched: Duration::from_secs(3),
    asked: Some(Duration::from_secs(10)),
};
/// The minimum pause between two counts of jobs.
const COUNTS: Duration = Duration::from_secs(10);
/// The minimum pause between two reads of the newest dead letters.
const FAILURES: Duration = Duration::from_secs(5);
/// The pause after a count or a read of dead letters is this number times the duration of that
/// read. The pause is at most [`LONGEST_REST`].
const SHARE: u32 = 50;
/// The interval between the events that listeners get.
const TICK: Duration = Duration::from_secs(1);
/// The maximum backoff after failed reads of the nodes or the due routes. It is also the minimum
/// pause after a failed count or a failed read of dead letters.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// The maximum pause after a count or a read of dead letters, even if the read was slow or failed.
const LONGEST_REST: Duration = Duration::from_secs(120);
/// The maximum age of a read of the nodes that a response may use.
const FRESH: Duration = Duration::from_secs(5);
/// Maximum time that a request waits for a fresh read of the nodes.
const PATIENCE: Duration = Duration::from_secs(4);

/// The intervals between two reads of one kind.
#[derive(Clone, Copy)]
struct Pace {
    /// The interval while clients read.
    watched: Duration,
    /// The interval while clients only ask for the readiness, the metrics or the status. `None` if
    /// there are no reads of this kind for such requests.
    asked: Option<Duration>,
}

/// Reads the state of the cluster in the background.
#[derive(Debug)]
pub(crate) struct Sampler {
    shared: Arc<Shared>,
    started: Once,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    namespaces: Vec<Name>,
    board: Mutex<Board>,
    feed: Arc<Feed>,
    demand: Mutex<Demand>,
    /// Notified when a client begins to read, or to ask, while no other client does.
    looks: Notify,
    /// Notified after every successful read, and after every failed read of the nodes or the due
    /// routes.
    read: watch::Sender<()>,
}

/// When clients last needed the reads.
#[derive(Debug, Default)]
struct Demand {
    /// When a client last read.
    looked_at: Option<Instant>,
    /// When a client last read, or asked for the readiness, the metrics or the status.
    asked_at: Option<Instant>,
}

impl Sampler {
    pub(crate) fn new(client: Client, namespaces: Vec<Name>) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                namespaces,
                board: Mutex::default(),
                feed: Arc::default(),
                demand: Mutex::default(),
                looks: Notify::new(),
                read: watch::Sender::new(()),
            }),
            started: Once::new(),
        }
    }

    /// Starts the background reads if they have not been started yet, and returns the sampler. The
    /// reads end when `closing` is cancelled.
    pub(crate) fn started(&self, closing: &CancellationToken) -> &Self {
        self.started.call_once(|| {
            let shared = Arc::clone(&self.shared);
            let closed = closing.clone().cancelled_owned();
            tokio::spawn(async move {
                tokio::select! {
                    () = closed => {}
                    () = shared.run() => {}
                }
            });
        });
        self
    }

    /// Records that a client asks for the readiness, the metrics or the status.
    pub(crate) fn ask(&self) {
        self.shared.ask();
    }

    /// Returns whether the database responds, and whether due jobs can run. Waits for a read of the
    /// nodes if the last one is old, for up to [`PATIENCE`].
    pub(crate) async fn fitness(&self) -> Fitness {
        self.shared.ask();
        let known = |board: &Board| board.is_fitness_known().then_some(());
        self.shared.wait(PATIENCE, known).await;
        self.shared.board().fitness()
    }

    /// Returns the result of the last read of the nodes and leaders, however old it is. `None`
    /// before the first read.
    pub(crate) fn last_cluster(&self) -> Option<Arc<Cluster>> {
        self.shared.board().cluster().cloned()
    }

    /// Returns the nodes and leaders from a read that is at most [`FRESH`] old. Waits for such a
    /// read if necessary.
    ///
    /// # Errors
    /// [`Code::Unavailable`] if no read succeeds within [`PATIENCE`].
    pub(crate) async fn cluster(&self) -> Result<Arc<Cluster>, Problem> {
        self.shared.look();
        let fresh = |board: &Board| {
            let read = board.cluster().cloned();
            read.filter(|cluster| cluster.age() <= FRESH)
        };
        self.shared.wait(PATIENCE, fresh).await.ok_or_else(away)
    }

    /// Returns the summary of the cluster.
    ///
    /// # Errors
    /// [`Code::Unavailable`] as in [`cluster`](Self::cluster).
    pub(crate) async fn overview(&self) -> Result<Overview, Problem> {
        self.cluster().await?;
        let due_is_read = |board: &Board| board.is_due_read().then_some(());
        self.shared.wait(PATIENCE, due_is_read).await;
        let board = self.shared.board();
        let mut overview = board.overview().ok_or_else(away)?;
        overview.series = board.series();
        Ok(overview)
    }

    /// Returns the queues from the last reads.
    pub(crate) fn queues(&self) -> view::Queues {
        self.shared.look();
        self.shared.board().queues()
    }

    /// Returns the last count of jobs by state, and the time of the count. If `queue` is given, the
    /// count includes only this queue.
    pub(crate) fn counts(&self, queue: Option<&Name>) -> Option<(Counts, At)> {
        self.shared.look();
        self.shared.board().counts(queue)
    }

    /// Records that this API paused or resumed a queue, so that lists of queues show the change at
    /// once.
    pub(crate) fn queue_paused(&self, queue: &Name, paused: bool) {
        self.shared.board().queue_paused(queue, paused);
    }

    /// Records that this API acted on jobs, so that the newest dead letters are read again.
    pub(crate) fn acted(&self) {
        self.shared.board().failures().acted();
    }

    /// Adds a listener of this client until the returned [`Seat`] is dropped.
    ///
    /// # Errors
    /// [`Code::TooManyClients`] if there are `most` listeners already, or if the client already has
    /// the maximum for one client.
    pub(crate) fn listen(
        &self,
        client: Option<ClientAddr>,
        most: usize,
    ) -> Result<(Listener, Seat), Problem> {
        let client = client.map(ClientAddr::key);
        let listener = self.shared.feed.listen(client, most).ok_or_else(|| {
            Problem::new(
                Code::TooManyClients,
                "the limit of event-stream clients is reached",
            )
            .retry_after(Duration::from_secs(10))
        })?;
        self.shared.look();
        let feed = Arc::clone(&self.shared.feed);
        Ok((listener, Seat { feed, client }))
    }
}

/// A guard for one listener. The number of listeners is limited. When the guard is dropped, the
/// listener no longer counts.
#[derive(Debug)]
pub(crate) struct Seat {
    feed: Arc<Feed>,
    client: Option<IpAddr>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.feed.leave(self.client);
    }
}

impl Shared {
    async fn run(&self) {
        tokio::join!(
            self.read_clusters(),
            self.read_due(),
            self.count(),
            self.read_failures(),
            self.tell()
        );
    }

    async fn read_clusters(&self) {
        let mut failures = 0;
        self.is_needed(CLUSTER).await;
        loop {
            match within(DEADLINE, self.cluster()).await {
                Ok(cluster) => {
                    if failures >= board::AWAY_AFTER {
                        tracing::warn!("the database responds again");
                    }
                    failures = 0;
                    let changed = {
                        let mut board = self.board();
                        let changed = board.read_cluster(cluster);
                        board.plot();
                        metrics::nothing_runs(board.nothing_runs());
                        changed
                    };
                    self.read.send_replace(());
                    if let Some(changed) = changed {
                        self.feed.tell("nodes", &changed);
                    }
                }
                Err(error) => {
                    failures += 1;
                    self.board().cluster_failed();
                    self.read.send_replace(());
                    if failures == board::AWAY_AFTER {
                        tracing::warn!(%error, "the database does not respond");
                    } else {
                        tracing::debug!(%error, "could not read the nodes");
                    }
                }
            }
            self.pause(CLUSTER, failures).await;
        }
    }

    async fn cluster(&self) -> Result<Cluster> {
        let nodes = self.client.nodes().await?;
        let leaders = self.client.leaders(&nodes).await?;
        let versions = match self.namespaces.as_slice() {
            [] => Vec::new(),
            namespaces => self.client.versions(namespaces).await?,
        };
        let at = self.client.database_time().await?;
        Ok(Cluster {
            versions,
            nodes,
            leaders,
            at,
            read_at: time::monotonic(),
        })
    }

    async fn read_due(&self) {
        let mut failures = 0;
        // Wait for the nodes, because they determine which due routes are stranded.
        self.clock_is_known().await;
        loop {
            let began = time::monotonic();
            match within(DEADLINE, self.client.due_routes()).await {
                Ok(due) => {
                    failures = 0;
                    let mut board = self.board();
                    board.read_due(due, began);
                    metrics::nothing_runs(board.nothing_runs());
                    drop(board);
                    self.read.send_replace(());
                }
                Err(error) => {
                    failures += 1;
                    let mut board = self.board();
                    board.due_failed();
                    metrics::nothing_runs(board.nothing_runs());
                    drop(board);
                    self.read.send_replace(());
                    tracing::debug!(%error, "could not read the due routes");
                }
            }
            self.pause(DUE, failures).await;
        }
    }

    async fn count(&self) {
        let mut pace = Pace {
            watched: Duration::ZERO,
            asked: None,
        };
        self.clock_is_known().await;
        loop {
            self.pause(pace, 0).await;
            let began = time::monotonic();
            match self.client.queues().await {
                Ok(queues) => {
                    self.board().read_counts(queues, began);
                    self.read.send_replace(());
                    pace.watched = rest(COUNTS, began.elapsed());
                }
                Err(error) => {
                    pace.watched = rest(LONGEST_BACKOFF, began.elapsed());
                    tracing::debug!(%error, "could not count the jobs");
                }
            }
        }
    }

    async fn read_failures(&self) {
        let newest = PageRequest::first(failures::READ).detail(Detail::Outline);
        let failed = JobFilter::all().state(JobState::Failed);
        let mut pace = Pace {
            watched: Duration::ZERO,
            asked: None,
        };
        self.clock_is_known().await;
        loop {
            self.pause(pace, 0).await;
            if !self.board().failures().are_wanted() {
                pace.watched = TICK;
                continue;
            }
            self.board().failures().begin();
            let began = time::monotonic();
            match self.client.list(&failed, &newest).await {
                Ok(page) => {
                    let told = self.board().read_failures(&page.jobs);
                    if let Some(newest) = told {
                        self.feed.tell("failures", &newest);
                    }
                    pace.watched = rest(FAILURES, began.elapsed());
                }
                Err(error) => {
                    pace.watched = rest(LONGEST_BACKOFF, began.elapsed());
                    self.board().failures().failed();
                    tracing::debug!(%error, "could not read the newest dead letters");
                }
            }
        }
    }

    async fn tell(&self) {
        let mut changes = Changes::default();
        loop {
            self.feed.listened_to().await;
            let began = time::monotonic();
            self.look();
            if let Some(overview) = self.board().overview() {
                let tick = view::Tick::new(&overview, changes.newest());
                self.feed.tell_lasting("tick", &tick);
            }
            match within(DEADLINE, changes.look(&self.client)).await {
                Ok(found) if found.jobs.is_empty() && found.dropped == 0 => {}
                Ok(found) => {
                    let jobs: Vec<view::Job> = found.jobs.iter().map(Into::into).collect();
                    let dropped = found.dropped;
                    self.board().failures().saw(&jobs);
                    self.feed.tell("jobs", &view::ChangedJobs { jobs, dropped });
                }
                Err(error) => tracing::debug!(%error, "could not read the newest jobs"),
            }
            tokio::time::sleep_until(began + TICK).await;
        }
    }

    /// Waits for the first read of the nodes, which also reads the database's clock.
    async fn clock_is_known(&self) {
        let known = |board: &Board| board.cluster().map(drop);
        self.wait(Duration::MAX, known).await;
    }

    /// Waits until a client needs the reads that have this pace.
    async fn is_needed(&self, pace: Pace) {
        loop {
            let looks = self.looks.notified();
            if self.interval(pace).is_some() {
                return;
            }
            looks.await;
        }
    }

    /// Waits until the next read is due. After failed reads, waits for the backoff instead.
    ///
    /// If a client begins to read during the wait, the shorter interval for reading clients applies
    /// at once.
    async fn pause(&self, pace: Pace, failures: u32) {
        let began = time::monotonic();
        let backoff = match failures {
            0 => Duration::ZERO,
            _ => LONGEST_BACKOFF.min(Duration::from_secs(1 << failures.min(5)) / 2),
        };
        loop {
            self.is_needed(pace).await;
            let looks = self.looks.notified();
            let Some(wait) = self.interval(pace) else {
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(began + wait.max(backoff)) => {
                    return self.is_needed(pace).await;
                }
                () = looks => {}
            }
        }
    }

    /// Records that a client reads now.
    fn look(&self) {
        let now = time::monotonic();
        let before = self.demand().looked_at.replace(now);
        self.ask();
        if !lasts(before, LOOKING) {
            self.looks.notify_waiters();
        }
    }

    /// Records that a client asks now.
    fn ask(&self) {
        let now = time::monotonic();
        let before = self.demand().asked_at.replace(now);
        if !lasts(before, ASKING) {
            self.board().begin();
            self.looks.notify_waiters();
        }
    }

    /// Returns the interval of this pace, or `None` if no client needs the reads now.
    fn interval(&self, pace: Pace) -> Option<Duration> {
        let demand = self.demand();
        match lasts(demand.looked_at, LOOKING) {
            true => Some(pace.watched),
            false => pace.asked.filter(|_| lasts(demand.asked_at, ASKING)),
        }
    }

    /// Waits until `shows` returns a value from the board, for up to `patience`.
    async fn wait<T>(&self, patience: Duration, shows: impl Fn(&Board) -> Option<T>) -> Option<T> {
        let mut read = self.read.subscribe();
        let shown = async {
            loop {
                read.borrow_and_update();
                if let Some(shown) = shows(&self.board()) {
                    return Some(shown);
                }
                read.changed().await.ok()?;
            }
        };
        match patience {
            Duration::MAX => shown.await,
            patience => tokio::time::timeout(patience, shown).await.ok().flatten(),
        }
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn demand(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether less than `time` has passed since the request at `at`. Returns false if there
/// was no request.
fn lasts(at: Option<Instant>, time: Duration) -> bool {
    at.is_some_and(|at| time::monotonic() < at + time)
}

/// Returns the pause after a count or a read of dead letters that took the time `took`.
fn rest(shortest: Duration, took: Duration) -> Duration {
    (took * SHARE).clamp(shortest, LONGEST_REST)
}

async fn within<T>(deadline: Duration, read: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(deadline, read).await {
        Ok(read) => read,
        Err(_) => Err(StoreError::new(StoreErrorKind::Timeout, "sample")),
    }
}

fn away() -> Problem {
    Problem::new(
        Code::Unavailable,
        "the database does not respond at present",
    )
    .retry_after(Duration::from_secs(2))
}
