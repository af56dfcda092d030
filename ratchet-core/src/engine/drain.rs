//! Drains a run: its graceful shutdown.
//!
//! A drain stops claiming and hands back jobs that have not begun. It waits for running bodies for
//! up to the grace period, cancels the rest, drops bodies that do not stop, and hands their jobs
//! back. Then it settles every claim, resigns every role, and leaves.

use std::time::Duration;

use super::maintain::heartbeat;
use super::maintain::undelivered;
use super::run::Run;
use crate::handler::CancelReason;
use crate::metrics;
use crate::model::NodeStatus;
use crate::time;

/// How long a cancelled body may take to stop before it is dropped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Drains a run whose loops are still running.
pub(super) async fn drain(run: &Run) {
    let grace = run.shared.common.config.drain_grace;
    let (node, label) = (run.identity.node(), run.identity.label());
    tracing::info!(
        target: "ratchet::node",
        %node, %label, bodies = run.shared.node_status.bodies(), ?grace,
        "node is draining: it claims no more jobs and waits for its running bodies"
    );
    run.stops.draining.cancel();
    run.claims.hand_back_waiting();
    run.identity.set_status(NodeStatus::Draining);
    if let Err(error) = heartbeat::announce(&run.heartbeat, NodeStatus::Draining).await {
        tracing::warn!(%error, "could not report that the node is draining");
    }
    let (began, mut result) = (time::monotonic(), "clean");
    if !settled_within(run, grace).await {
        result = "interrupted";
        run.running.cancel_all(CancelReason::Shutdown);
        if !settled_within(run, LAST_WORDS.min(grace)).await {
            run.stops.abort.cancel();
            let deadline = run.shared.common.config.store_deadline;
            if !settled_within(run, deadline).await {
                result = "abandoned";
                tracing::error!(
                    claims = run.claims.held(),
                    "the node stops without having settled all its claims; other nodes will \
                     reclaim the jobs"
                );
            }
        }
    }
    metrics::drained(result, began.elapsed());
    // The daemons were cancelled when the drain began.
    run.daemon.instances.close();
    let teardown = run.shared.common.config.leadership.teardown;
    let _ = tokio::time::timeout(teardown + LAST_WORDS, run.daemon.instances.wait()).await;
    run.recurring.under_way.close();
    let _ = tokio::time::timeout(
        run.shared.common.config.store_deadline,
        run.recurring.under_way.wait(),
    )
    .await;
    run.step_down().await;
    // No claim call is under way any more. So claims that the store lists but the node does not
    // hold are handed back now, with their old due time, instead of waiting for a reclaim pass.
    if let Err(error) =
        undelivered::beat_and_hand_back(&run.undelivered, NodeStatus::Draining).await
    {
        tracing::warn!(%error, "could not hand back claims, of which the store's reply was lost");
    }
    run.identity.set_status(NodeStatus::Left);
    if let Err(error) = undelivered::beat_and_hand_back(&run.undelivered, NodeStatus::Left).await {
        tracing::warn!(%error, "could not report that the node is leaving");
    }
}

/// Waits until no claim is held. Returns `false` if that takes longer than `patience`.
async fn settled_within(run: &Run, patience: Duration) -> bool {
    let settled = async {
        while run.claims.held() > 0 {
            run.claims.settled.notified().await;
            // A claim call that was in flight when the drain began may have returned more jobs.
            run.claims.hand_back_waiting();
        }
    };
    tokio::time::timeout(patience, settled).await.is_ok()
}
