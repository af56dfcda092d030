//! Measures claimers that contend for the head of one queue. Does not use Ratchet's engine, because
//! the engine waits after an empty claim.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use ratchet::store_api::model::{ClaimRequest, Fenced};
use ratchet::{JobId, NodeId, Outcome as Ending, Settlement, SharedStore};
use ratchet_bench::figures::Outcome;
use tokio::task::JoinSet;

/// Maximum number of jobs that one claim returns.
const CLAIM: usize = 50;

/// Counters that all claimers share.
#[derive(Default)]
struct Tally {
    jobs: usize,
    /// Maximum number of jobs that the claimers can have claimed in the database but not yet added
    /// to `claimed`.
    on_their_way: usize,
    claimed: AtomicUsize,
    settled: AtomicUsize,
    claims: AtomicU64,
    empty: AtomicU64,
    seen: Mutex<HashSet<JobId>>,
}

/// Claims and settles `jobs` pending jobs. Starts one claimer per store, and returns when all jobs
/// are claimed and settled.
pub(crate) async fn run(stores: Vec<SharedStore>, jobs: usize) -> Result<Outcome> {
    let tally = Arc::new(Tally {
        jobs,
        on_their_way: stores.len() * CLAIM,
        ..Tally::default()
    });
    let mut claimers = JoinSet::new();
    for store in stores {
        claimers.spawn(claim(store, Arc::clone(&tally)));
    }
    while let Some(ended) = claimers.join_next().await {
        ended??;
    }
    let settled = tally.settled.load(Ordering::Relaxed);
    Ok(Outcome {
        missing: jobs.saturating_sub(settled),
        duplicates: tally.claimed.load(Ordering::Relaxed) - tally.seen().len(),
        claims: tally.claims.load(Ordering::Relaxed),
        empty_claims: Some(tally.empty.load(Ordering::Relaxed)),
        ..Outcome::default()
    })
}

async fn claim(store: SharedStore, tally: Arc<Tally>) -> Result<()> {
    let request = ClaimRequest::new(NodeId::new(), CLAIM);
    while tally.claimed.load(Ordering::Relaxed) < tally.jobs {
        let claimed = store.jobs().claim_next_batch(&request).await?;
        tally.claims.fetch_add(1, Ordering::Relaxed);
        let before = tally.claimed.fetch_add(claimed.len(), Ordering::Relaxed);
        if claimed.is_empty() {
            // Counts an empty claim only if unclaimed jobs were certainly left, even if every other
            // claimer has just claimed the maximum number of jobs.
            let in_vain = before + tally.on_their_way < tally.jobs;
            tally.empty.fetch_add(in_vain.into(), Ordering::Relaxed);
            continue;
        }
        let tokens = claimed.iter().map(|job| job.claim.token);
        tally.seen().extend(tokens.clone().map(|token| token.job));
        let end = |token| Settlement::new(token, Ending::Succeeded { result: None });
        let ends: Vec<Settlement> = tokens.map(end).collect();
        let answers = store.jobs().settle(&ends).await?;
        let applied = answers.iter().filter(|answer| **answer == Fenced::Applied);
        tally.settled.fetch_add(applied.count(), Ordering::Relaxed);
    }
    Ok(())
}

impl Tally {
    fn seen(&self) -> std::sync::MutexGuard<'_, HashSet<JobId>> {
        self.seen
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }
}
