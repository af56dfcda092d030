//! Maintenance: deletes finished jobs that are older than the retention, and rates that nobody uses
//! any more, a bounded pass at a time.
//!
//! The leader of the maintenance role does it, and each pass lands only in its term.

use std::sync::Arc;

use super::leader::MAINTENANCE;
use super::run::Run;
use crate::cluster::Leadership;
use crate::error::Result;
use crate::model::{Guarded, PurgeRequest};
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
    forget_rates(run).await?;
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
    Ok(())
}

/// Deletes the rates that are as if they had never been used. Whoever does it does no harm.
async fn forget_rates(run: &Run) -> Result<()> {
    let calls = &run.shared.calls;
    loop {
        let forgotten = calls.call("forget_idle", |store| async move {
            match store.rates() {
                None => Ok(0),
                Some(rates) => rates.forget_idle(PASS).await,
            }
        });
        if forgotten.await? < PASS as u64 {
            return Ok(());
        }
    }
}
