//! Leadership: one loop for each role of the node, which campaigns while the node is active.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::roles::Candidacy;
use crate::client::RetryDelays;
use crate::cluster::ElectionOutcome;
use crate::engine::common::Common;
use crate::engine::membership::heartbeat_interval::HeartbeatInterval;
use crate::engine::membership::identity::Identity;
use crate::error::Result;
use crate::metrics::{self, StepDown};
use crate::model::NodeStatus;

/// The handles that the loops of the roles use.
pub(crate) struct LeaderHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) identity: Arc<Identity>,
    pub(crate) interval: Arc<HeartbeatInterval>,
    /// Cancelled when the run stops leading.
    pub(crate) stepping_down: CancellationToken,
}

/// Campaigns for the role, as long as the node may lead.
pub(crate) async fn run(run: Arc<LeaderHandles>, candidacy: Arc<Candidacy>) {
    metrics::candidate(candidacy.leadership.role());
    let mut backoff = RetryDelays::of("leader").about(candidacy.leadership.role());
    while !run.stepping_down.is_cancelled() {
        let wait = match turn(&run, &candidacy).await {
            Ok(wait) => {
                backoff.reset();
                wait
            }
            Err(error) => {
                let delay = backoff.failed(&error, run.common.random());
                delay.min(heartbeat(&run))
            }
        };
        tokio::select! {
            biased;
            () = run.stepping_down.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Notifies the watchers when the leadership of the role could not be renewed in time.
pub(crate) async fn watchdog(candidacy: Arc<Candidacy>) {
    candidacy.leadership.watchdog().await;
}

/// Takes one turn of the election, and returns how long to wait before the next turn.
async fn turn(run: &LeaderHandles, candidacy: &Candidacy) -> Result<Duration> {
    let mut election = candidacy.election.lock().await;
    let leads = candidacy.leadership.is_leader();
    if run.stepping_down.is_cancelled() || (!leads && run.identity.status() != NodeStatus::Active) {
        return Ok(heartbeat(run));
    }
    if election.is_of_another(run.identity.node()) {
        // The node was declared dead and has a new id. Work that needs this role must stop here
        // before another node leads.
        candidacy.leadership.step_down(StepDown::Superseded);
        drop(candidacy.in_use.lock().await);
    }
    let outcome = election.turn(run.identity.node()).await?;
    if let ElectionOutcome::Elected(term) = &outcome {
        run.interval.at_work();
        tracing::info!(node = %run.identity.node(), role = %candidacy.leadership.role(), term = term.0, "node leads");
    }
    Ok(election.next_turn(&outcome))
}

fn heartbeat(run: &LeaderHandles) -> Duration {
    run.common.config.leadership.heartbeat
}
