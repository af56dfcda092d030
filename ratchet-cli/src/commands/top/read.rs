//! What one look reads. Jobs are counted seldom: that reads their whole table.

use std::time::Duration;

use ratchet::model::{JobFilter, PageRequest};
use ratchet::time::monotonic;
use ratchet::{Client, JobState};
use ratchet_http::view;
use tokio::time::Instant;

use super::model::{Failed, Seen};
use crate::commands::queues;
use crate::exit::Failure;

/// How long after a count the next comes, at least, and how often as long as it took.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
const COUNT_SHARE: u32 = 50;
/// How many failures are shown.
const FAILURES: usize = 8;

pub(super) struct Reader<'a> {
    client: &'a Client,
    counts: Option<(view::Queues, Instant)>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        let counts = None;
        Self { client, counts }
    }

    pub(super) async fn read(&mut self) -> Result<Seen, Failure> {
        let client = self.client;
        let at = client.database_time().await?;
        let nodes = client.nodes().await?;
        let leaders = client.leaders().await?;
        let due = client.due_routes().await?;
        let failed = JobFilter::all().state(JobState::Failed);
        let failed = client.list(&failed, &PageRequest::first(FAILURES)).await?;
        Ok(Seen {
            database: {
                let info = client.store().info();
                format!("{} {}", info.backend, info.version)
            },
            at,
            stranded: ratchet::stranded::stranded(&due, &nodes).len(),
            nodes,
            leaders,
            due,
            queues: self.queues().await?,
            failed: failed.jobs.iter().map(Failed::from).collect(),
        })
    }

    async fn queues(&mut self) -> Result<view::Queues, Failure> {
        let now = monotonic();
        if let Some((queues, next)) = &self.counts
            && now < *next
        {
            return Ok(queues.clone());
        }
        let queues = queues::queues(self.client).await?;
        let took = monotonic() - now;
        let next = now + COUNT_INTERVAL.max(took * COUNT_SHARE);
        self.counts = Some((queues.clone(), next));
        Ok(queues)
    }
}
