//! Active-passive nodes: only the node that leads in the configured role claims jobs.

use std::sync::Arc;

use crate::cluster::Leadership;
use crate::engine::settle::held_claims::HeldClaims;

/// The leadership that the node needs to claim. `None` if it may always claim.
#[derive(Clone, Debug)]
pub(crate) struct Gate(pub(crate) Option<Leadership>);

impl Gate {
    /// Returns the leadership that the node needs and does not have. `None` if the node may claim.
    pub(crate) fn closed(&self) -> Option<&Leadership> {
        self.0.as_ref().filter(|gate| !gate.is_leader())
    }

    /// Returns whether the node may not claim at present, because it does not lead.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed().is_some()
    }
}

/// Whenever the node ceases to lead, hands back the claims whose bodies have not begun.
pub(crate) async fn run(claims: Arc<HeldClaims>, leadership: Leadership) {
    let mut watch = leadership.watch();
    loop {
        let term = watch.elected().await;
        for pool in &claims.pools {
            pool.room.notify_one();
        }
        watch.lost(term).await;
        claims.hand_back_waiting();
    }
}
