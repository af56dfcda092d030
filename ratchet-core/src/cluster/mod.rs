//! Coordination between nodes: wakeups and leadership.
//!
//! Wakeups are best-effort hints to poll now. Polling alone ensures that every job is found;
//! wakeups only reduce the latency. Losing all wakeups costs at most one poll interval.
//!
//! A role has one leader at a time: the holder of its lock, whose fence is the term. An
//! [`Election`] campaigns for the role. A [`Leadership`] reports whether this process leads.

mod election;
mod in_process;
mod job_wakeups;
mod leaders;
mod leadership;
mod noop;
mod role_locks;
mod timings;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

pub use election::{Election, ElectionOutcome};
pub use in_process::InProcessCoordinator;
pub use job_wakeups::JobWakeups;
pub use leaders::Leader;
pub use leadership::{Leadership, LeadershipWatch};
pub use noop::NoopCoordinator;
pub(crate) use role_locks::{RoleLocks, locks_of_roles};
pub use timings::LeaderTimings;

use crate::id::NodeId;
use crate::metrics;
use crate::name::Name;

/// A hint that there may be work. A wakeup may be wrong, so the receiver checks the database.
///
/// A wakeup is serializable, so a coordinator needs no message type of its own.
///
/// ```
/// use ratchet::Name;
/// use ratchet_core::cluster::Wakeup;
///
/// let wakeup = Wakeup::queue(Name::new("queue", "mail")?);
/// let message = serde_json::to_string(&wakeup)?;
/// assert_eq!(message, r#"{"queue":"mail"}"#);
/// assert_eq!(serde_json::from_str::<Wakeup>(&message)?, wakeup);
/// # Ok::<(), ratchet::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wakeup {
    /// The queue that has work. `None` means any queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// The node that sent the wakeup. So this node can ignore its own wakeups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<NodeId>,
    /// The only node that should poll. `None` means every node. A wakeup that a node addresses to
    /// itself asks no node to poll: see `leads_for_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeId>,
    /// How much longer the sender trusts that it leads the cluster's maintenance, in milliseconds,
    /// counted from when it sent the wakeup. 0 if it has just resigned. `None` if the wakeup is no
    /// [beacon](Self::beacon). The sender addresses a beacon to itself, so that it wakes no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_for_ms: Option<u32>,
}

impl Wakeup {
    /// Creates a hint about this queue.
    #[must_use]
    pub const fn queue(queue: Name) -> Self {
        Self {
            queue: Some(queue),
            source: None,
            to: None,
            leads_for_ms: None,
        }
    }

    /// Creates a hint to poll all queues. A transport sends one when it may have lost wakeups.
    #[must_use]
    pub const fn any() -> Self {
        Self {
            queue: None,
            source: None,
            to: None,
            leads_for_ms: None,
        }
    }

    /// Sets the sender.
    #[must_use]
    pub const fn from_node(mut self, node: NodeId) -> Self {
        self.source = Some(node);
        self
    }

    /// Addresses the wakeup to one node; the other nodes ignore it.
    #[must_use]
    pub const fn to(mut self, node: NodeId) -> Self {
        self.to = Some(node);
        self
    }

    /// Creates a beacon, by which the leader of the cluster's maintenance informs the other nodes
    /// that it works, and how much longer it trusts that it leads. A beacon with `leads_for` zero
    /// says that the leader has resigned. A beacon asks no node to poll, so it is addressed to its
    /// sender.
    #[must_use]
    pub fn beacon(leader: NodeId, leads_for: Duration) -> Self {
        // Rounded up, because zero has a meaning of its own.
        let leads_for_ms = leads_for.as_nanos().div_ceil(1_000_000);
        let leads_for_ms = u32::try_from(leads_for_ms).unwrap_or(u32::MAX);
        Self {
            leads_for_ms: Some(leads_for_ms),
            ..Self::any().from_node(leader).to(leader)
        }
    }

    /// Returns the sender of a [`beacon`](Self::beacon), and how much longer it trusts that it
    /// leads. `None` if this is no beacon.
    pub(crate) fn as_beacon(&self) -> Option<(NodeId, Duration)> {
        let leads_for = Duration::from_millis(self.leads_for_ms?.into());
        self.source.map(|leader| (leader, leads_for))
    }

    /// Returns whether no node should poll, because the wakeup is addressed to its sender.
    pub(crate) fn wakes_no_node(&self) -> bool {
        self.to.is_some() && self.to == self.source
    }

    /// Returns whether every node should poll all queues.
    pub(crate) const fn is_for_all(&self) -> bool {
        self.queue.is_none() && self.to.is_none()
    }

    /// Returns whether this node sent the wakeup itself.
    #[must_use]
    pub fn is_echo_of(&self, node: NodeId) -> bool {
        self.source == Some(node)
    }
}

/// Carries wakeups between nodes. Implement it over any transport, such as Redis, NATS or the
/// database itself.
///
/// # Contract
/// - **[wakeup.delivery]** A wakeup normally reaches every subscription that exists when it is
///   sent. A transport may lose wakeups, but never makes one up.
/// - **[wakeup.everyone]** Every subscription gets its own copy of a wakeup, including the
///   subscriptions of the sender. One coordinator may serve several nodes and clients of a process,
///   and cannot know which of them subscribed.
/// - **[wakeup.echo]** A wakeup arrives with the `source` that it was sent with, or with none if it
///   had none. So each subscriber can ignore its own echoes ([`Wakeup::is_echo_of`]).
/// - **[wakeup.to]** A wakeup arrives with the `to` that it was sent with, or with none if it had
///   none. So an enqueue can wake one node instead of all.
/// - **[wakeup.beacon]** A wakeup arrives with the `leads_for_ms` that it was sent with, or with
///   none if it had none. So the other nodes know for how long a node leads, and read less often.
/// - **[wakeup.reach]** If `reaches_all_nodes` is `true`, a wakeup sent through one handle of the
///   store normally reaches the subscriptions of every other handle, even in other processes.
/// - **[wakeup.harmless]** `notify` never fails, and never blocks on a slow or dead transport or
///   subscriber: it drops the hint instead.
/// - **[wakeup.isolated]** A subscriber that panics, falls behind or goes away does not affect the
///   senders or the other subscribers.
/// - **[wakeup.outage]** While the transport is unavailable, senders and subscribers see no error:
///   `notify` returns as always, and streams wait. When the transport is back, each existing
///   subscription gets a wakeup for any queue, because others may have been lost, and then every
///   wakeup that is sent, without subscribing again. Operators see outages by
///   [`coordinator_outage`](crate::metrics::coordinator_outage).
/// - **[wakeup.end]** After the last handle of a coordinator, including its clones, is dropped, its
///   background work ends, and the remaining streams wait forever. There is no close method.
///   Handles and streams may be dropped in any order.
///
/// The engine calls `notify` only after the change that the hint is about was committed, and
/// ignores the wakeups that its own node sent.
#[async_trait]
pub trait ClusterCoordinator: Debug + Send + Sync + 'static {
    /// Sends a wakeup to all subscribers, on a best-effort basis.
    ///
    /// # Cancel safety
    /// Dropping the future drops the hint, which is allowed.
    async fn notify(&self, wakeup: Wakeup);

    /// Subscribes to the wakeups sent from now on.
    fn subscribe(&self) -> WakeupStream;

    /// Returns whether a wakeup normally reaches every node that uses the same store, in whatever
    /// process. If `false`, clients do not address single nodes, because the wakeup might not reach
    /// the chosen node.
    fn reaches_all_nodes(&self) -> bool;
}

/// A stream of wakeups, created by a subscription.
///
/// ```
/// use ratchet_core::cluster::{ClusterCoordinator, InProcessCoordinator, Wakeup};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let coordinator = InProcessCoordinator::new();
/// let mut wakeups = coordinator.subscribe();
/// coordinator.notify(Wakeup::any()).await;
/// assert_eq!(wakeups.next().await, Wakeup::any());
/// # }
/// ```
#[derive(Debug)]
pub struct WakeupStream(Option<broadcast::Receiver<Wakeup>>);

impl WakeupStream {
    /// Creates a stream that never yields a wakeup.
    #[must_use]
    pub const fn never() -> Self {
        Self(None)
    }

    /// Returns whether no more wakeup can arrive.
    pub(crate) const fn is_never(&self) -> bool {
        self.0.is_none()
    }

    /// Waits for the next wakeup. A stream that lagged yields one wakeup about any queue in place
    /// of those that it missed. A stream whose sender is gone waits forever.
    ///
    /// # Cancel safety
    /// Dropping the future loses no wakeup.
    pub async fn next(&mut self) -> Wakeup {
        if let Some(receiver) = &mut self.0 {
            match receiver.recv().await {
                Ok(wakeup) => return wakeup,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    metrics::wakeup_lost(missed);
                    return Wakeup::any();
                }
                Err(broadcast::error::RecvError::Closed) => self.0 = None,
            }
        }
        std::future::pending().await
    }
}

impl WakeupStream {
    /// Discards the wakeups received so far, for a subscriber that is about to poll anyway.
    pub fn clear(&mut self) {
        use broadcast::error::TryRecvError::Lagged;
        if let Some(receiver) = &mut self.0 {
            while matches!(receiver.try_recv(), Ok(_) | Err(Lagged(_))) {}
        }
    }
}

impl From<broadcast::Receiver<Wakeup>> for WakeupStream {
    fn from(receiver: broadcast::Receiver<Wakeup>) -> Self {
        Self(Some(receiver))
    }
}
