//! The beacons of the node that leads the role `maintenance`.
//!
//! The leader sends a beacon every 2 s while it looks for due jobs. If there is no other node, only
//! its own loops receive the beacon, without the transport of the wakeups. A node that receives
//! beacons knows that the leader works, and that wakeups arrive. So it needs to read less often:
//! whether jobs are due, who leads, and whether a recurring definition has changed. A wakeup for
//! all nodes ends the trust in earlier beacons. A leader that resigns sends one, so that candidates
//! notice at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::ClusterCoordinator;
use crate::id::NodeId;
use crate::time;

/// The time between two beacons.
pub(crate) const BEACON: Duration = Duration::from_secs(2);

/// The last beacon that this node received; `None` if a wakeup for all nodes has arrived since.
#[derive(Debug, Default)]
pub(crate) struct Beacons(watch::Sender<Option<Beacon>>);

/// A received beacon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beacon {
    /// The node that led when it sent the beacon.
    pub(crate) leader: NodeId,
    /// When the beacon was received.
    pub(crate) heard: Instant,
}

impl Beacons {
    /// Records that a beacon of this leader was received.
    pub(crate) fn receive(&self, leader: NodeId) {
        let heard = time::monotonic();
        self.0.send_replace(Some(Beacon { leader, heard }));
    }

    /// How long a beacon counts. It is two and a half times [`BEACON`], so that one beacon may be
    /// lost.
    const FRESH: Duration = Duration::from_secs(5);

    /// Returns a receiver of the last beacon.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Beacon>> {
        self.0.subscribe()
    }

    /// Returns the leader whose beacon was received recently enough.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let now = time::monotonic();
        let last = *self.0.borrow();
        last.filter(|last| now < last.heard + Self::FRESH)
            .map(|last| last.leader)
    }
}

/// The handles that the receiver of beacons uses.
pub(crate) struct BeaconHandles {
    pub(crate) coordinator: Arc<dyn ClusterCoordinator>,
    pub(crate) beacons: Arc<Beacons>,
}

/// Receives beacons, as long as the node runs.
pub(crate) async fn run(run: Arc<BeaconHandles>) {
    let mut wakeups = run.coordinator.subscribe();
    loop {
        let wakeup = wakeups.next().await;
        if let Some(leader) = wakeup.beacon_of() {
            run.beacons.receive(leader);
        } else if wakeup.is_for_all() {
            run.beacons.0.send_replace(None);
        }
    }
}
