//! Hands back claims that the store lists under this node but that the node never received.
//!
//! The heartbeat finds these claims. They are settled here, outside of the heartbeat, so that a
//! store that settles slowly does not silence the node. A claim that cannot be handed back is found
//! again by the next heartbeat.

use std::sync::Arc;

use super::heartbeat::{self, HeartbeatHandles};
use crate::client::{Client, WakeQueue};
use crate::engine::common::Common;
use crate::engine::settle::held_claims::HeldClaims;
use crate::engine::settle::settler;
use crate::error::Result;
use crate::id::ClaimToken;
use crate::limits;
use crate::metrics;
use crate::model::{Fenced, NodeStatus, Outcome, Settlement};
use crate::outage::Outage;

/// Shared state of the loop that hands back undelivered claims.
pub(crate) struct UndeliveredHandles {
    pub(crate) common: Arc<Common>,
    pub(crate) claims: Arc<HeldClaims>,
    pub(crate) heartbeat: Arc<HeartbeatHandles>,
    pub(crate) client: Client,
    pub(crate) wake_queue: Arc<WakeQueue>,
}

/// Hands back undelivered claims after each heartbeat, as long as the node runs. An undelivered
/// claim is listed in the store under this node, and the node never received it.
pub(crate) async fn run(run: Arc<UndeliveredHandles>) {
    let mut outage = Outage::of("undelivered");
    loop {
        run.claims.ledger.compared().await;
        match hand_back(&run).await {
            Ok(()) => outage.ended(),
            Err(error) => outage.failed(&error),
        }
    }
}

/// Sends a heartbeat with this status. Then hands back the claims that the reply lists and that
/// this node never received.
pub(crate) async fn beat_and_hand_back(run: &UndeliveredHandles, status: NodeStatus) -> Result<()> {
    heartbeat::announce(&run.heartbeat, status).await?;
    hand_back(run).await
}

/// Hands back the claims that the last heartbeat listed and that this node never received. The
/// attempts and crash counts of their jobs do not increase, and the jobs keep their due times.
async fn hand_back(run: &UndeliveredHandles) -> Result<()> {
    let (mut handed_back, mut failure) = (0, Ok(()));
    for tokens in run
        .claims
        .ledger
        .take_undelivered()
        .chunks(limits::MAX_BATCH)
    {
        let end = |token: &ClaimToken| Settlement::new(*token, Outcome::Undelivered);
        let ends: Vec<Settlement> = tokens.iter().map(end).collect();
        for answer in settler::settle_each(&run.common, &ends).await {
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
            "handed back claims, of which the store's reply never reached this node"
        );
        run.wake_queue.wake(None);
        run.client.wake_others(settler::SENDING).await;
    }
    failure
}
