//! Maintenance: deletes finished jobs and batches that are older than the retention, a bounded pass at a time.
//!
//! The leader of the maintenance role does it, and each pass lands only in its term.

use std::sync::Arc;

use super::leader::MAINTENANCE;
use super::run::Run;
use crate::cluster::Leadership;
use crate::error::Result;
use crate::model::{BatchPurge, Guarded, PurgeRequest};
use crate::state::JobState;

/// The most jobs one pass deletes, so that it never holds the database up.
const PASS: usize = 1_000;

/// Maintains for as long as the node runs.
pub(super) async fn run(run: Arc<Run>) {
    loop {
        let wait = run.shared.config.maintenance_interval;
        tokio::time::sleep(wait.mul_f64(0.9 + 0.2 * run.shared.random())).await;
        let leads = run.shared.roles.leadership(MAINTENANCE);
        if !leads.is_some_and(Leadership::is_leader) {
            continue;
        }
        if let Err(error) = tick(&run).await {
            tracing::warn!(%error, "maintenance failed");
        }
    }
}

/// Deletes what is old.
pub(super) async fn tick(run: &Run) -> Result<()> {
    let Some(retention) = run.shared.config.retention else {
        return Ok(());
    };
    let Some(guard) = run.shared.maintenance_guard() else {
        return Ok(());
    };
    for state in JobState::ALL
        .into_iter()
        .filter(|state| state.is_terminal())
    {
        let request = PurgeRequest::new(state, retention, PASS).guarded(Some(guard.clone()));
        loop {
            let purge = run
                .shared
                .calls
                .call("purge", |store| store.jobs().purge(&request));
            match purge.await? {
                Guarded::Done(purged) if purged < PASS as u64 => break,
                Guarded::Done(_) => {}
                Guarded::Stale => return Ok(()),
            }
        }
    }
    purge_batches(run, &BatchPurge::new(retention, PASS).guarded(Some(guard))).await
}

/// Deletes old ended batches.
async fn purge_batches(run: &Run, request: &BatchPurge) -> Result<()> {
    loop {
        let purge = run.shared.calls.call("purge_batches", |store| async move {
            match store.workflows() {
                Some(workflows) => workflows.purge_batches(request).await,
                None => Ok(Guarded::Done(0)),
            }
        });
        match purge.await? {
            Guarded::Done(purged) if purged == PASS as u64 => {}
            Guarded::Done(_) | Guarded::Stale => return Ok(()),
        }
    }
}
