//! Maintenance: deletes finished jobs that are older than the retention, a bounded pass at a time.

use std::sync::Arc;

use super::run::Run;
use crate::error::Result;
use crate::model::PurgeRequest;
use crate::state::JobState;

/// The most jobs one pass deletes, so that it never holds the database up.
const PASS: usize = 1_000;

/// Maintains for as long as the node runs.
pub(super) async fn run(run: Arc<Run>) {
    loop {
        let wait = run.shared.config.maintenance_interval;
        tokio::time::sleep(wait.mul_f64(0.9 + 0.2 * run.shared.random())).await;
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
    for state in JobState::ALL
        .into_iter()
        .filter(|state| state.is_terminal())
    {
        let request = PurgeRequest::new(state, retention, PASS);
        loop {
            let purge = run
                .shared
                .calls
                .call("purge", |store| store.jobs().purge(&request));
            if purge.await? < PASS as u64 {
                break;
            }
        }
    }
    Ok(())
}
