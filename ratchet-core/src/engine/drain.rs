//! Draining: how a run ends in order.
//!
//! Stop claiming and hand back what has not begun; wait for running bodies up to the grace; tell
//! the rest to stop, drop those that do not, and hand their jobs back; settle everything; give every
//! role up; leave.

use std::time::Duration;

use super::maintain::heartbeat;
use super::maintain::undelivered;
use super::run::Run;
use crate::handler::CancelReason;
use crate::metrics;
use crate::model::NodeStatus;
use crate::time;

/// How long a body that was told to stop has to do so before it is dropped.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Ends a run whose loops are still going.
pub(super) async fn drain(run: &Run) {
    let grace = run.shared.common.config.drain_grace;
    let (node, label) = (run.identity.node(), run.identity.label());
    tracing::info!(
        target: "ratchet::node",
        %node, %label, bodies = run.shared.node_status.bodies(), ?grace,
        "node drains: claims nothing more, and waits for its bodies"
    );
    run.stops.draining.cancel();
    run.claims.hand_back_waiting();
    run.identity.set_status(NodeStatus::Draining);
    if let Err(error) = heartbeat::announce(&run.heartbeat, NodeStatus::Draining).await {
        tracing::warn!(%error, "could not say that the node drains");
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
                    "left without settling: others take these jobs back"
                );
            }
        }
    }
    metrics::drained(result, began.elapsed());
    // Their time to stop has been running since the drain began.
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
    // The node waits for no claim call any more, so whatever the store lists and the node does not hold
    // goes back at once, with its old due time, and not when a pass takes it back.
    if let Err(error) =
        undelivered::beat_and_hand_back(&run.undelivered, NodeStatus::Draining).await
    {
        tracing::warn!(%error, "could not hand back claims whose answer was lost");
    }
    run.identity.set_status(NodeStatus::Left);
    if let Err(error) = undelivered::beat_and_hand_back(&run.undelivered, NodeStatus::Left).await {
        tracing::warn!(%error, "could not say that the node leaves");
    }
}

/// Waits until no claim is held; false if that took longer than `patience`.
async fn settled_within(run: &Run, patience: Duration) -> bool {
    let settled = async {
        while run.claims.held() > 0 {
            run.claims.settled.notified().await;
            // A claim call that was under way when the drain began may have brought more.
            run.claims.hand_back_waiting();
        }
    };
    tokio::time::timeout(patience, settled).await.is_ok()
}
