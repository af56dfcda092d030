//! The job that does nothing, and when it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet::store_api::time::monotonic;
use ratchet::{Job, JobContext, JobResult, Requires};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

#[derive(Serialize, Deserialize)]
pub(super) struct Nothing {
    /// Which of those whose start is measured.
    pub(super) number: Option<usize>,
}

impl Job for Nothing {
    const KIND: &'static str = "ratchet-bench";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        if let Some(number) = self.number {
            ctx.state::<Arc<Seen>>().began(number);
        }
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Seen>>()
    }
}

/// When jobs were enqueued, and when they began: microseconds, 0 for not yet.
#[derive(Debug)]
pub(super) struct Seen {
    origin: Instant,
    sent: Vec<AtomicU64>,
    began: Vec<AtomicU64>,
}

impl Seen {
    pub(super) fn new(jobs: usize) -> Self {
        let zeros = || (0..jobs).map(|_| AtomicU64::new(0)).collect();
        Self {
            origin: monotonic(),
            sent: zeros(),
            began: zeros(),
        }
    }

    fn now(&self) -> u64 {
        let micros = (monotonic() - self.origin).as_micros();
        u64::try_from(micros).unwrap_or(u64::MAX).max(1)
    }

    pub(super) fn sent(&self, number: usize) {
        self.sent[number].store(self.now(), Ordering::Relaxed);
    }

    fn began(&self, number: usize) {
        if let Some(began) = self.began.get(number) {
            began.store(self.now(), Ordering::Relaxed);
        }
    }

    /// One for each job; one that began before its enqueue returned waited 0.
    pub(super) fn latencies(&self) -> Vec<Duration> {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let pairs = self.sent.iter().zip(&self.began);
        let waits = pairs.map(|(sent, began)| read(began).saturating_sub(read(sent)));
        waits.map(Duration::from_micros).collect()
    }
}
