//! The beacons of the node that leads the role `maintenance`.
//!
//! The leader sends a beacon every 2 s while it looks for due jobs and reclaims lost claims. If
//! there is no other node, only the leader's own loops receive the beacon, and the transport of the
//! wakeups is not used. A node that receives beacons knows that the leader works, and that wakeups
//! arrive. So it reads less often whether jobs are due, which node leads, and whether a recurring
//! definition has changed.
//!
//! A node that reads less often depends on wakeups. After a wakeup for all nodes without a sender,
//! the node no longer trusts earlier beacons, because a transport sends such a wakeup when it may
//! have lost others. A leader that resigns sends a last beacon that says so.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::ClusterCoordinator;
use crate::id::NodeId;
use crate::time;

/// The time between two beacons.
pub(crate) const BEACON: Duration = Duration::from_secs(2);

/// How long a node trusts a beacon. It is two and a half times [`BEACON`], so that one beacon may
/// be lost.
const TRUSTED: Duration = BEACON.saturating_mul(5).checked_div(2).unwrap();

/// The beacons that this node received, and whether its own reclaim passes succeed.
#[derive(Debug, Default)]
pub(crate) struct Beacons {
    received: watch::Sender<Received>,
    /// The time until which this node's own reclaim passes count as successful.
    reclaims_until: Mutex<Option<Instant>>,
}

/// The last beacon that a node received, and whether the node still trusts it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    /// The last beacon of a leader that has not resigned.
    last: Option<Beacon>,
    /// Whether a wakeup that names no sender has arrived for all nodes since the last beacon.
    doubted: bool,
    /// The last leader that resigned. A beacon that it sent earlier may arrive after its
    /// resignation, and is ignored.
    resigned: Option<NodeId>,
}

/// A received beacon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beacon {
    /// The node that led when it sent the beacon.
    pub(crate) leader: NodeId,
    /// When the beacon was received.
    pub(crate) heard: Instant,
    /// The latest time until which the leader trusts that it leads, as far as the beacon says.
    pub(crate) leads_until: Instant,
}

impl Received {
    /// Returns the last beacon, even if it is old or no longer trusted.
    pub(crate) const fn last(&self) -> Option<Beacon> {
        self.last
    }

    /// Returns the last beacon, unless a wakeup for all nodes without a sender has arrived since.
    pub(crate) fn undoubted(&self) -> Option<Beacon> {
        self.last.filter(|_| !self.doubted)
    }
}

impl Beacons {
    /// Records that a beacon of this leader was received. The leader trusts for `leads_for` more
    /// that it leads. Zero means that it has resigned.
    pub(crate) fn receive(&self, leader: NodeId, leads_for: Duration) {
        let heard = time::monotonic();
        self.received.send_modify(|received| {
            if leads_for.is_zero() {
                received.resigned = Some(leader);
                received.last = received.last.filter(|last| last.leader != leader);
            } else if received.resigned != Some(leader) {
                received.doubted = false;
                received.last = Some(Beacon {
                    leader,
                    heard,
                    leads_until: heard + leads_for,
                });
            }
        });
    }

    /// Records that wakeups may have been lost.
    fn doubt(&self) {
        self.received
            .send_modify(|received| received.doubted = true);
    }

    /// Subscribes to changes of the last received beacons.
    pub(crate) fn watch(&self) -> watch::Receiver<Received> {
        self.received.subscribe()
    }

    /// Returns the last beacon, even if it is old or no longer trusted.
    pub(crate) fn last(&self) -> Option<Beacon> {
        self.received.borrow().last()
    }

    /// Returns the leader if its last beacon is younger than [`TRUSTED`], and no wakeup for all
    /// nodes has arrived since.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let now = time::monotonic();
        let undoubted = self.received.borrow().undoubted();
        undoubted
            .filter(|beacon| now < beacon.heard + TRUSTED)
            .map(|beacon| beacon.leader)
    }

    /// Records that the reclaim passes of this node count as successful for this long.
    pub(crate) fn reclaims_for(&self, time: Duration) {
        *self.reclaims() = Some(time::monotonic() + time);
    }

    /// Returns whether the reclaim passes of this node count as successful. If not, the node sends
    /// no beacons, so that other nodes reclaim more often.
    pub(crate) fn reclaims_succeed(&self) -> bool {
        let now = time::monotonic();
        self.reclaims().is_some_and(|until| now < until)
    }

    fn reclaims(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        let until = self.reclaims_until.lock();
        until.unwrap_or_else(PoisonError::into_inner)
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
        if let Some((leader, leads_for)) = wakeup.as_beacon() {
            run.beacons.receive(leader, leads_for);
        } else if wakeup.is_for_all() && wakeup.source.is_none() {
            // A transport sends such a wakeup after an outage. One from a node shows no outage.
            run.beacons.doubt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{InProcessCoordinator, Wakeup};

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_resigned_is_not_trusted_because_of_a_late_beacon() {
        let (beacons, [a, b]) = (Beacons::default(), [0; 2].map(|_| NodeId::new()));
        let second = Duration::from_secs(1);
        beacons.receive(a, 8 * second);
        assert_eq!(beacons.leader(), Some(a));
        beacons.receive(a, Duration::ZERO);
        assert_eq!(beacons.leader(), None);
        beacons.receive(a, 8 * second);
        assert_eq!(beacons.leader(), None);
        beacons.receive(b, 8 * second);
        assert_eq!(beacons.leader(), Some(b));
        beacons.receive(a, Duration::ZERO);
        assert_eq!(beacons.leader(), Some(b));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_wakeup_without_a_sender_ends_the_trust() {
        let coordinator = Arc::new(InProcessCoordinator::new());
        let beacons = Arc::new(Beacons::default());
        let receiver = tokio::spawn(run(Arc::new(BeaconHandles {
            coordinator: Arc::clone(&coordinator) as Arc<dyn ClusterCoordinator>,
            beacons: Arc::clone(&beacons),
        })));
        let (leader, other) = (NodeId::new(), NodeId::new());
        let passed_on = async || tokio::time::sleep(Duration::from_millis(1)).await;
        passed_on().await;
        let seconds = Duration::from_secs(8);
        coordinator.notify(Wakeup::beacon(leader, seconds)).await;
        passed_on().await;
        assert_eq!(beacons.leader(), Some(leader));
        coordinator.notify(Wakeup::any().from_node(other)).await;
        passed_on().await;
        assert_eq!(beacons.leader(), Some(leader));
        coordinator.notify(Wakeup::any()).await;
        passed_on().await;
        assert_eq!(beacons.leader(), None);
        receiver.abort();
    }

    #[test]
    fn a_leader_with_a_moment_left_has_not_resigned() {
        let leader = NodeId::new();
        let beacon = Wakeup::beacon(leader, Duration::from_micros(400));
        assert_eq!(beacon.as_beacon(), Some((leader, Duration::from_millis(1))));
        let resigned = Wakeup::beacon(leader, Duration::ZERO);
        assert_eq!(resigned.as_beacon(), Some((leader, Duration::ZERO)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wakeup_for_all_ends_the_trust_and_keeps_the_beacon() {
        let (beacons, leader) = (Beacons::default(), NodeId::new());
        let second = Duration::from_secs(1);
        beacons.receive(leader, 8 * second);
        beacons.doubt();
        assert_eq!(beacons.leader(), None);
        let last = beacons.last().unwrap();
        assert_eq!(last.leads_until, time::monotonic() + 8 * second);
        beacons.receive(leader, 6 * second);
        assert_eq!(beacons.leader(), Some(leader));
        tokio::time::advance(TRUSTED).await;
        assert_eq!(beacons.leader(), None);
    }
}
