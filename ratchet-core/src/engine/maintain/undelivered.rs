//! Hands back the claims that the store lists under this node and the node never received.
//!
//! The heartbeat finds them; they are settled here, beside the heartbeat, so that a store that settles
//! slowly keeps no node silent. What cannot be handed back is found again by the next heartbeat.

use std::sync::Arc;

use super::heartbeat;
use crate::engine::run::Run;
use crate::engine::settle::settler;
use crate::error::Result;
use crate::id::ClaimToken;
use crate::limits;
use crate::metrics;
use crate::model::{Fenced, NodeStatus, Outcome, Settlement};
use crate::outage::Outage;

/// Hands claims back for as long as the node runs.
pub(crate) async fn run(run: Arc<Run>) {
    let mut outage = Outage::of("undelivered");
    loop {
        run.ledger.compared().await;
        match hand_back(&run).await {
            Ok(()) => outage.ended(),
            Err(error) => outage.failed(&error),
        }
    }
}

/// Beats with this status, and hands back what the reply shows to be undelivered.
pub(crate) async fn beat_and_hand_back(run: &Run, status: NodeStatus) -> Result<()> {
    heartbeat::announce(run, status).await?;
    hand_back(run).await
}

/// Hands back what the last heartbeat found: at no attempt and no crash, with the old due times.
async fn hand_back(run: &Run) -> Result<()> {
    let (mut handed_back, mut failure) = (0, Ok(()));
    for tokens in run.ledger.take_undelivered().chunks(limits::MAX_BATCH) {
        let end = |token: &ClaimToken| Settlement::new(*token, Outcome::Undelivered);
        let ends: Vec<Settlement> = tokens.iter().map(end).collect();
        for answer in settler::settle_each(run, &ends).await {
            match answer {
                Ok(Fenced::Applied) => handed_back += 1,
                Ok(Fenced::Stale) => {}
                Err(error) => failure = Err(error),
            }
        }
    }
    if handed_back > 0 {
        metrics::claims_undelivered(handed_back);
        tracing::warn!(
            claims = handed_back,
            "handed back claims whose answer never reached this node"
        );
        run.shared.wake_queue.wake(None);
        run.shared.client.wake_others(settler::TELL).await;
    }
    failure
}
