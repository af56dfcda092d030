//! What nodes are to each other: wakeups, and leadership.
//!
//! Wakeups are best-effort hints to poll now. Polling is correctness, wakeups are latency: losing
//! every one of them costs at most one poll interval.
//!
//! A role has one leader at a time: the holder of its lock, whose fence is the term. An
//! [`Election`] campaigns for it, a [`Leadership`] says whether it was won.

mod election;
mod in_process;
mod leaders;
mod leadership;
mod noop;
mod timings;

use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

pub use election::{Election, ElectionOutcome};
pub use in_process::InProcessCoordinator;
pub use leaders::Leader;
pub(crate) use leaders::PREFIX as LEADER_PREFIX;
pub use leadership::{Leadership, LeadershipWatch};
pub use noop::NoopCoordinator;
pub use timings::LeaderTimings;

use crate::id::NodeId;
use crate::metrics;
use crate::name::Name;

/// A hint that there may be work. It never carries truth: whoever gets it looks into the database.
///
/// It serializes, so that a coordinator needs no message type of its own.
///
/// ```
/// use ratchet_core::Name;
/// use ratchet_core::cluster::Wakeup;
///
/// let wakeup = Wakeup::queue(Name::new("queue", "mail")?);
/// let message = serde_json::to_string(&wakeup)?;
/// assert_eq!(message, r#"{"queue":"mail"}"#);
/// assert_eq!(serde_json::from_str::<Wakeup>(&message)?, wakeup);
/// # Ok::<(), ratchet_core::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wakeup {
    /// The queue that has work; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// The node that sent it, so that it can ignore its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<NodeId>,
}

impl Wakeup {
    /// A hint about this queue.
    #[must_use]
    pub const fn queue(queue: Name) -> Self {
        Self {
            queue: Some(queue),
            source: None,
        }
    }

    /// A hint to look into all queues: what a transport says when it may have lost others.
    #[must_use]
    pub const fn any() -> Self {
        Self {
            queue: None,
            source: None,
        }
    }

    /// Says who sends it.
    #[must_use]
    pub const fn from_node(mut self, node: NodeId) -> Self {
        self.source = Some(node);
        self
    }

    /// Whether this node sent it itself, and so knew before.
    #[must_use]
    pub fn is_echo_of(&self, node: NodeId) -> bool {
        self.source == Some(node)
    }
}

/// Carries wakeups between nodes. Implement it over anything: Redis, NATS, the database itself.
///
/// # Contract
/// - **[wakeup.delivery]** A wakeup sent while a subscription exists reaches it, as a rule; any may
///   be lost, none may be made up.
/// - **[wakeup.everyone]** Every subscription gets its own copy, also those of the sender: one
///   coordinator may serve several nodes and clients of a process, and cannot know which of them
///   subscribed.
/// - **[wakeup.echo]** A wakeup comes with the `source` it was sent with, or without one if it had
///   none. So each subscriber can leave its own echoes out: [`Wakeup::is_echo_of`].
/// - **[wakeup.harmless]** `notify` never fails and never blocks on a slow or dead transport or
///   subscriber: it drops the hint.
/// - **[wakeup.isolated]** A subscriber that panics, falls behind or goes away costs the senders and
///   the other subscribers nothing.
/// - **[wakeup.outage]** While the transport is away nobody is told: `notify` returns as always, and
///   streams wait. When it is back, each subscription that is there gets a wakeup about any queue,
///   since others may have been lost, and then those that are sent, without subscribing again.
///   Operators see it by [`coordinator_outage`](crate::metrics::coordinator_outage).
/// - **[wakeup.end]** There is nothing to close. When the last handle (all clones) is dropped,
///   whatever the coordinator does in the background ends, and streams that are left wait for ever.
///   Handles and streams may be dropped in any order.
///
/// The engine calls `notify` only after what the hint is about was committed, and ignores wakeups
/// that are echoes of the node itself.
#[async_trait]
pub trait ClusterCoordinator: Debug + Send + Sync + 'static {
    /// Sends a wakeup to all subscribers, at best.
    ///
    /// # Cancel safety
    /// Dropping the future drops the hint, which is allowed.
    async fn notify(&self, wakeup: Wakeup);

    /// Receives the wakeups sent from now on.
    fn subscribe(&self) -> WakeupStream;
}

/// Wakeups as they come.
#[derive(Debug)]
pub struct WakeupStream(Option<broadcast::Receiver<Wakeup>>);

impl WakeupStream {
    /// A stream on which nothing ever comes.
    #[must_use]
    pub const fn never() -> Self {
        Self(None)
    }

    /// The next wakeup. A stream that fell behind gets one wakeup about any queue in place of those
    /// it missed; a stream whose sender is gone waits for ever.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
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
    /// Forgets the wakeups that have come, for a subscriber that is about to look anyway.
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
