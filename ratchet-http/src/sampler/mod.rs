//! What is read in the background, once for all who look.
//!
//! While no client reads, only what readiness depends on is read: the nodes, and which routes are
//! due. A minute after the last look it is back to that. Jobs are counted, and the newest dead
//! letters read, only while clients read, and the longer it takes the less often, however many come
//! and go; the newest jobs are read only while there are listeners. Each kind of reading has one
//! loop, so it is never under way twice, and who looks does not wait for it: what is known is shown
//! at once.

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

/// How long a client counts as reading after a request.
const LOOKING: Duration = Duration::from_secs(60);
/// How long a reading may take before it counts as failed; the counting and the newest dead letters
/// have the deadline of the client.
const DEADLINE: Duration = Duration::from_secs(3);
/// The nodes and leaders are read as often as this.
const CLUSTER: Pace = Pace {
    watched: Duration::from_secs(2),
    quiet: Some(Duration::from_secs(5)),
};
/// How often due routes are read.
const DUE: Pace = Pace {
    watched: Duration::from_secs(3),
    quiet: Some(Duration::from_secs(10)),
};
/// Jobs are counted no more often than this.
const COUNTS: Duration = Duration::from_secs(10);
/// The newest dead letters are read no more often than this.
const FAILURES: Duration = Duration::from_secs(5);
/// And both no more often than that this part of the time is spent on each, up to [`LONGEST_REST`].
const SHARE: u32 = 50;
/// How often listeners get events.
const TICK: Duration = Duration::from_secs(1);
/// The longest pause after readings that failed.
const LONGEST_BACKOFF: Duration = Duration::from_secs(15);
/// The longest pause after a reading of a whole table, whether it was slow or failed.
const LONGEST_REST: Duration = Duration::from_secs(120);
/// How old a reading of the nodes may be that is answered with.
const FRESH: Duration = Duration::from_secs(5);
/// How long an answer waits for a reading.
const PATIENCE: Duration = Duration::from_secs(4);

/// How often something is read.
#[derive(Clone, Copy)]
struct Pace {
    /// While clients read.
    watched: Duration,
    /// While none does; `None` for not at all.
    quiet: Option<Duration>,
}

/// Reads what pages show of the whole cluster.
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
    looked_at: Mutex<Option<Instant>>,
    /// A client reads again.
    looks: Notify,
    /// Told of every reading that came through.
    read: watch::Sender<()>,
}

impl Sampler {
    pub(crate) fn new(client: Client, namespaces: Vec<Name>) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                namespaces,
                board: Mutex::default(),
                feed: Arc::default(),
                looked_at: Mutex::default(),
                looks: Notify::new(),
                read: watch::Sender::new(()),
            }),
            started: Once::new(),
        }
    }

    /// The same, reading from now on until it is closed.
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

    /// Whether the database answers, and whether jobs are stranded.
    pub(crate) fn fitness(&self) -> Fitness {
        self.shared.board().fitness()
    }

    /// The nodes and leaders as they were last read, however long ago.
    pub(crate) fn last_cluster(&self) -> Option<Arc<Cluster>> {
        self.shared.board().cluster().cloned()
    }

    /// The nodes and leaders, read at most a few seconds ago.
    ///
    /// # Errors
    /// The error of a reading that fails at present.
    pub(crate) async fn cluster(&self) -> Result<Arc<Cluster>, Problem> {
        self.shared.look();
        let fresh = |board: &Board| {
            let read = board.cluster().cloned();
            read.filter(|cluster| cluster.age() <= FRESH)
        };
        self.shared.wait(PATIENCE, fresh).await.ok_or_else(away)
    }

    /// The cluster at a glance.
    ///
    /// # Errors
    /// The error of a reading that fails at present.
    pub(crate) async fn overview(&self) -> Result<Overview, Problem> {
        self.cluster().await?;
        let board = self.shared.board();
        let mut overview = board.overview().ok_or_else(away)?;
        overview.series = board.series();
        Ok(overview)
    }

    /// The last reading of the queues.
    pub(crate) fn queues(&self) -> view::Queues {
        self.shared.look();
        self.shared.board().queues()
    }

    /// The jobs by state, all of them or those of a queue, and when they were counted.
    pub(crate) fn counts(&self, queue: Option<&Name>) -> Option<(Counts, At)> {
        self.shared.look();
        self.shared.board().counts(queue)
    }

    /// Notes that a queue was paused or resumed, so that it is shown before the next reading.
    pub(crate) fn queue_paused(&self, queue: &Name, paused: bool) {
        self.shared.board().queue_paused(queue, paused);
    }

    /// Notes an action on jobs, some of which may have been dead letters.
    pub(crate) fn acted(&self) {
        self.shared.board().failures().acted();
    }

    /// Adds a listener of this client, unless there are `most` already or the client has its share
    /// of them. It must [leave](Seat).
    pub(crate) fn listen(
        &self,
        client: Option<ClientAddr>,
        most: usize,
    ) -> Result<(Listener, Seat), Problem> {
        let client = client.map(ClientAddr::key);
        let listener = self.shared.feed.listen(client, most).ok_or_else(|| {
            Problem::new(Code::TooManyClients, "as many clients listen as may")
                .retry_after(Duration::from_secs(10))
        })?;
        self.shared.look();
        let feed = Arc::clone(&self.shared.feed);
        Ok((listener, Seat { feed, client }))
    }
}

/// The place of a listener; free again when it is dropped.
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
        loop {
            match within(DEADLINE, self.cluster()).await {
                Ok(cluster) => {
                    if failures >= board::AWAY_AFTER {
                        tracing::warn!("the database answers again");
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
                    if failures == board::AWAY_AFTER {
                        tracing::warn!(%error, "the database does not answer");
                    } else {
                        tracing::debug!(%error, "the nodes could not be read");
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
        // What is stranded depends on the nodes.
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
                    tracing::debug!(%error, "what is due could not be read");
                }
            }
            self.pause(DUE, failures).await;
        }
    }

    async fn count(&self) {
        let mut pace = Pace {
            watched: Duration::ZERO,
            quiet: None,
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
                    tracing::debug!(%error, "the jobs could not be counted");
                }
            }
        }
    }

    async fn read_failures(&self) {
        let newest = PageRequest::first(failures::READ).detail(Detail::Outline);
        let failed = JobFilter::all().state(JobState::Failed);
        let mut pace = Pace {
            watched: Duration::ZERO,
            quiet: None,
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
                    tracing::debug!(%error, "the newest dead letters could not be read");
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
                Err(error) => tracing::debug!(%error, "the newest jobs could not be read"),
            }
            tokio::time::sleep_until(began + TICK).await;
        }
    }

    /// Waits for the first reading of the nodes, with which the database's time comes.
    async fn clock_is_known(&self) {
        let known = |board: &Board| board.cluster().map(drop);
        self.wait(Duration::MAX, known).await;
    }

    /// Waits until the next reading of this pace is due; longer after failures. A client that reads
    /// again after a while ends a wait that was longer because none did.
    async fn pause(&self, pace: Pace, failures: u32) {
        let began = time::monotonic();
        let backoff = match failures {
            0 => Duration::ZERO,
            _ => LONGEST_BACKOFF.min(Duration::from_secs(1 << failures.min(5)) / 2),
        };
        loop {
            let looks = self.looks.notified();
            tokio::pin!(looks);
            looks.as_mut().enable();
            let wait = match (self.is_watched(), pace.quiet) {
                _ if failures > 0 => backoff,
                (true, _) => pace.watched,
                (false, Some(quiet)) => quiet,
                (false, None) => {
                    looks.await;
                    continue;
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(began + wait) => {
                    if self.is_watched() || pace.quiet.is_some() {
                        return;
                    }
                }
                () = looks => {}
            }
        }
    }

    /// Notes that a client reads.
    fn look(&self) {
        let watched = self.is_watched();
        *self.looked_at() = Some(time::monotonic());
        if !watched {
            self.looks.notify_waiters();
        }
    }

    fn is_watched(&self) -> bool {
        let looked_at = *self.looked_at();
        looked_at.is_some_and(|at| time::monotonic() < at + LOOKING)
    }

    /// Waits until the board shows something, up to this long.
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

    fn looked_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.looked_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the pause after a reading of a whole table that took this long.
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
    Problem::new(Code::Unavailable, "the database does not answer at present")
        .retry_after(Duration::from_secs(2))
}
