//! Reads the data that `ratchet top` shows. The expensive queries run less often: the counts of
//! jobs, and the newest dead letters.

use std::future::Future;
use std::time::Duration;

use ratchet::store_api::time::monotonic;
use ratchet::{Client, Detail, JobFilter, JobState, PageRequest};
use ratchet_http::view;
use tokio::time::Instant;

use super::model::{Failed, Seen};
use crate::commands::queues;
use crate::exit::Failure;

/// Minimum interval between two queries that count jobs.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum interval between two queries for the newest dead letters.
const FAILURES_INTERVAL: Duration = Duration::from_secs(1);
/// After a query, the reader waits at least this many times the duration of the query before it
/// runs the same query again.
const SHARE: u32 = 50;
/// Maximum number of dead letters that the view shows.
const FAILURES: usize = 8;

pub(super) struct Reader<'a> {
    client: &'a Client,
    queues: Seldom<view::Queues>,
    failed: Seldom<Vec<Failed>>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self {
            client,
            queues: Seldom::every(COUNT_INTERVAL),
            failed: Seldom::every(FAILURES_INTERVAL),
        }
    }

    pub(super) async fn read(&mut self) -> Result<Seen, Failure> {
        let client = self.client;
        let at = client.database_time().await?;
        let nodes = client.nodes().await?;
        let leaders = client.leaders(&nodes).await?;
        let due = client.due_routes().await?;
        let mut queues = self.queues.get(queues::queues(client)).await?;
        // The counts may come from an earlier read. The due routes were just read, so the delays
        // and the pauses are taken from them.
        for queue in &mut queues.queues {
            let of_queue = due
                .iter()
                .filter(|due| due.route.queue.as_str() == queue.name);
            queue.overdue_ms = of_queue.clone().map(|due| view::millis(due.overdue)).max();
            queue.paused = of_queue
                .map(|due| due.queue_paused)
                .next()
                .unwrap_or(queue.paused);
        }
        Ok(Seen {
            database: {
                let info = client.store().info();
                format!("{} {}", info.backend, info.version)
            },
            at,
            stranded: ratchet::store_api::stranded::stranded(&due, &nodes).len(),
            nodes,
            leaders,
            due,
            queues,
            failed: self.failed.get(failed(client)).await?,
        })
    }
}

async fn failed(client: &Client) -> Result<Vec<Failed>, Failure> {
    let failed = JobFilter::all().state(JobState::Failed);
    let page = PageRequest::first(FAILURES).detail(Detail::Outline);
    let page = client.list(&failed, &page).await?;
    Ok(page.jobs.iter().map(Failed::from).collect())
}

/// Cache for the result of a query. The query runs at most once per `interval`, and less often if
/// it takes long.
struct Seldom<T> {
    interval: Duration,
    /// Result of the last query, and the earliest time of the next query.
    last: Option<(T, Instant)>,
}

impl<T: Clone> Seldom<T> {
    const fn every(interval: Duration) -> Self {
        let last = None;
        Self { interval, last }
    }

    async fn get(&mut self, read: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let began = monotonic();
        if let Some((known, next)) = &self.last
            && began < *next
        {
            return Ok(known.clone());
        }
        let read = read.await;
        let took = monotonic() - began;
        let next = began + self.interval.max(took * SHARE);
        let known = match (read, self.last.take()) {
            (Ok(new), _) => new,
            // Keep the last result, and do not retry before the interval has passed.
            (Err(_), Some((known, _))) => known,
            (Err(failure), None) => return Err(failure),
        };
        self.last = Some((known.clone(), next));
        Ok(known)
    }
}
