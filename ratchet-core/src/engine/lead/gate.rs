//! Active-passive nodes: only the node that leads in a certain role claims jobs.

use std::sync::Arc;

use crate::cluster::Leadership;
use crate::engine::settle::held_claims::HeldClaims;

/// The leadership without which the node claims nothing. `None` if it always claims.
#[derive(Clone, Debug)]
pub(crate) struct Gate(pub(crate) Option<Leadership>);

impl Gate {
    /// Returns the leadership that the node lacks and needs to claim.
    pub(crate) fn closed(&self) -> Option<&Leadership> {
        self.0.as_ref().filter(|gate| !gate.is_leader())
    }

    /// Whether the node may not claim at present because another one is the active one.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed().is_some()
    }
}

/// Hands back, whenever the node ceases to lead, what it claimed while it led and has not begun.
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
