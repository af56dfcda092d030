use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ready::{Ready, ReadyQueue};
use super::reporter::Reporter;
use super::running::RunningSet;
use super::settler::SettleBuffer;
use super::shared::Shared;
use super::suspects::Suspects;
use crate::id::NodeId;
use crate::model::{Claim, NodeStatus, Outcome, Settlement};
use crate::name::Name;
use crate::time;

/// One run of a node, from joining to leaving: what its loops share.
pub(super) struct Run {
    pub(super) shared: Arc<Shared>,
    pub(super) label: Name,
    identity: Mutex<(NodeId, NodeStatus)>,
    pub(super) ready: ReadyQueue,
    pub(super) suspects: Suspects,
    pub(super) running: RunningSet,
    pub(super) reporter: Arc<Reporter>,
    pub(super) settlements: SettleBuffer,
    /// Claims this node has, or has asked for, and has not settled.
    held: AtomicUsize,
    /// The poller is told of room when no more than this many claims are held.
    pub(super) refill_at: AtomicUsize,
    pub(super) room: Notify,
    /// Told whenever claims were settled.
    pub(super) settled: Notify,
    /// Since when this node's heartbeats have come through without a gap.
    heard_since: Mutex<Option<(Instant, Instant)>>,
    /// Held during a heartbeat and what it leads to: two at a time could both change who the node
    /// is.
    pub(super) beating: tokio::sync::Mutex<()>,
    /// No more claiming.
    pub(super) draining: CancellationToken,
    /// Bodies are dropped.
    pub(super) abort: CancellationToken,
    /// Somebody else runs under this node's label.
    pub(super) displaced: CancellationToken,
}

impl Run {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let id = NodeId::new();
        let label = shared.label.clone().unwrap_or_else(|| default_label(id));
        Self {
            reporter: Arc::new(Reporter::new(Arc::clone(&shared.calls))),
            shared,
            label,
            identity: Mutex::new((id, NodeStatus::Joining)),
            ready: ReadyQueue::new(),
            suspects: Suspects::default(),
            running: RunningSet::default(),
            settlements: SettleBuffer::default(),
            held: AtomicUsize::new(0),
            refill_at: AtomicUsize::new(0),
            room: Notify::new(),
            settled: Notify::new(),
            heard_since: Mutex::new(None),
            beating: tokio::sync::Mutex::new(()),
            draining: CancellationToken::new(),
            abort: CancellationToken::new(),
            displaced: CancellationToken::new(),
        }
    }

    /// Who the node is at present: it gets another id when it was taken for dead.
    pub(super) fn node(&self) -> NodeId {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .0
    }

    pub(super) fn status(&self) -> NodeStatus {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .1
    }

    pub(super) fn set_status(&self, status: NodeStatus) {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .1 = status;
    }

    /// Becomes somebody else.
    pub(super) fn renew_identity(&self) {
        self.identity
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
            .0 = NodeId::new();
    }

    /// Takes note of a heartbeat that came through.
    pub(super) fn heard(&self) {
        let now = time::monotonic();
        let gap = self.shared.config.heartbeat_interval.saturating_mul(2);
        let mut heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let since = match *heard {
            Some((since, last)) if now.saturating_duration_since(last) <= gap => since,
            _ => now,
        };
        *heard = Some((since, now));
    }

    /// Whether the database has been within reach for so long that the others have had their
    /// chance to be heard too.
    pub(super) fn trusts_silence(&self) -> bool {
        let heard = self
            .heard_since
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        let patience = self.shared.config.dead_after;
        heard.is_some_and(|(since, last)| last.saturating_duration_since(since) >= patience)
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) fn hold(&self, claims: usize) {
        self.held.fetch_add(claims, Ordering::SeqCst);
    }

    /// Forgets claims that were settled, handed back or lost.
    pub(super) fn let_go(&self, claims: usize) {
        let held = self.held.fetch_sub(claims, Ordering::SeqCst) - claims;
        self.settled.notify_one();
        if held <= self.refill_at.load(Ordering::SeqCst) {
            self.room.notify_one();
        }
    }

    /// Hands claims back whose bodies have not begun.
    pub(super) fn hand_back(&self, claims: Vec<Ready>) {
        for ready in claims {
            self.settle(Settlement::new(ready.claim.token, Outcome::Released));
        }
    }

    /// Ends a claim, soon; it is settled together with others while more are about to end.
    pub(super) fn settle(&self, settlement: Settlement) {
        self.settlements.push(settlement, self.ready.len() > 0);
    }

    /// Ends a claim whose body ran. If a lane moves on with it, the next poll is not waited for.
    pub(super) fn settle_ended(&self, claim: &Claim, settlement: Settlement) {
        if claim.lane.is_some() && settlement.effect(false).state.is_terminal() {
            self.settlements.push_head(settlement, self.ready.len() > 0);
        } else {
            self.settle(settlement);
        }
    }
}

/// A label that no other node has.
fn default_label(id: NodeId) -> Name {
    let text = format!("node-{id}");
    match Name::new("label", text) {
        Ok(label) => label,
        Err(_) => unreachable!("an id makes a valid name"),
    }
}
