use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use ratchet::{Job, JobContext, JobResult, Requires};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::measure::{Clock, Latencies};
use crate::result::Outcome;

/// The job every peer runs: a number and 64 bytes of text, and nothing to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Nothing {
    pub(crate) n: usize,
    pub(crate) text: String,
}

impl Nothing {
    pub(crate) fn number(n: usize) -> Self {
        Self {
            n,
            text: "0123456789abcdef".repeat(4),
        }
    }
}

impl Job for Nothing {
    const KIND: &'static str = "nothing";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        ctx.state::<Arc<Ledger>>().began(self.n);
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Ledger>>()
    }
}

/// Which jobs ran, how often, and when.
pub(crate) struct Ledger {
    clock: Clock,
    runs: Vec<AtomicU32>,
    sent: Vec<AtomicU64>,
    begun: Vec<AtomicU64>,
}

impl Ledger {
    pub(crate) fn new(jobs: usize) -> Arc<Self> {
        let zeros = || (0..jobs).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self {
            clock: Clock::start(),
            runs: (0..jobs).map(|_| AtomicU32::new(0)).collect(),
            sent: zeros(),
            begun: zeros(),
        })
    }

    /// The enqueue of job `n` returned.
    pub(crate) fn sent(&self, n: usize) {
        self.sent[n].store(self.clock.nanos(), Ordering::Relaxed);
    }

    /// The body of job `n` began.
    pub(crate) fn began(&self, n: usize) {
        self.begun[n].store(self.clock.nanos(), Ordering::Relaxed);
        self.runs[n].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what was seen to an outcome; a body that began before its enqueue returned waited 0.
    pub(crate) fn judge(&self, outcome: &mut Outcome, with_latency: bool) {
        let runs = || self.runs.iter().map(|runs| runs.load(Ordering::Relaxed));
        outcome.missing = runs().filter(|runs| *runs == 0).count();
        outcome.duplicates = runs().filter(|runs| *runs > 1).count();
        if with_latency {
            let mut latencies = Latencies::default();
            for (sent, begun) in self.sent.iter().zip(&self.begun) {
                let (sent, begun) = (sent.load(Ordering::Relaxed), begun.load(Ordering::Relaxed));
                if begun > 0 {
                    latencies.add(Duration::from_nanos(begun.saturating_sub(sent)));
                }
            }
            latencies.report(outcome);
        }
    }
}
