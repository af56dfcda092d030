//! Hooks, which notify the application about the jobs of a node.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::panic_text::panic_text;
use crate::id::NodeId;
use crate::metrics;
use crate::model::{Claim, Settlement};
use crate::name::Name;

/// Receives the events of a node, for metrics, alerts and tests. The default implementation of each
/// method does nothing. See [`NodeBuilder::hook`](crate::NodeBuilder::hook).
///
/// # Contract
/// - The end of a claim is reported once, by the node that settled the claim, after the store has
///   stored the end. It is not reported if the process dies between the write and the call of the
///   hook, or if the node fails a job because of its crashes and the store's answer is lost. If no
///   event may be missed, act in the body or in another job, or read the store.
/// - A body runs at least once, so the start of a job may be reported more than once. Each
///   [`job_started`](Self::job_started) is followed by one [`job_ended`](Self::job_ended) or one
///   [`job_lost`](Self::job_lost), unless the process dies or the run of the node is dropped.
/// - Only actions of this node are reported. A change that another node or a client makes to a
///   waiting job, such as a cancellation, a pause or a purge, is not reported, and neither is a
///   claim that another node reclaims.
/// - The node does not see a cancellation that reaches the database while the body returns. Then
///   the hooks report the outcome of the body, although the job is `Cancelled`.
/// - Hooks are called in the order in which they were added, between two steps of the node's work,
///   while no connection to the database is held. They must return at once, because a hook that
///   blocks delays settlements. For longer work, send to a channel or spawn a task.
/// - A panic in a hook is logged. It affects neither the job, the node nor the other hooks.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ratchet::{Claim, Outcome, Settlement};
/// use ratchet::{MemoryStore, NodeHook, Ratchet};
///
/// #[derive(Clone, Default)]
/// struct DeadLetters(Arc<AtomicU64>);
///
/// impl NodeHook for DeadLetters {
///     fn job_ended(&self, claim: &Claim, end: &Settlement) {
///         if let Outcome::Failed { error } = &end.outcome {
///             self.0.fetch_add(1, Ordering::Relaxed);
///             eprintln!("{} {} is a dead letter: {error}", claim.route.kind, claim.token.job);
///         }
///     }
/// }
///
/// let dead_letters = DeadLetters::default();
/// let builder = Ratchet::builder(Arc::new(MemoryStore::new())).hook(dead_letters.clone());
/// # let _ = builder;
/// ```
pub trait NodeHook: Send + Sync + 'static {
    /// Called when the node has joined the cluster and begins to claim.
    fn node_joined(&self, node: NodeId, label: &Name) {
        let _ = (node, label);
    }

    /// Called when the node has drained and left.
    fn node_left(&self, node: NodeId, label: &Name) {
        let _ = (node, label);
    }

    /// Called when a body begins.
    fn job_started(&self, claim: &Claim) {
        let _ = claim;
    }

    /// Called when a claim has ended, after the store has stored the end. A dead letter has the
    /// outcome [`Outcome::Failed`](crate::model::Outcome::Failed).
    ///
    /// Called for every body that began and ended, and for jobs that ended without a body: because
    /// they were cancelled first, because their payload does not decode, or because their claims
    /// were lost too often. For jobs that ended without a body, `end.ran_for` is `None`.
    fn job_ended(&self, claim: &Claim, end: &Settlement) {
        let _ = (claim, end);
    }

    /// Called when the node lost the job while its body ran. The outcome of the body does not
    /// count. The job can run again on any node.
    fn job_lost(&self, claim: &Claim) {
        let _ = claim;
    }
}

/// The hooks of a node, in the order in which they were added.
#[derive(Clone, Default)]
pub(super) struct Hooks(Vec<Arc<dyn NodeHook>>);

impl Hooks {
    pub(super) fn add(&mut self, hook: impl NodeHook) {
        self.0.push(Arc::new(hook));
    }

    /// Calls every hook, and logs the hooks that panic.
    pub(super) fn tell(&self, tell: impl Fn(&dyn NodeHook)) {
        for hook in &self.0 {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| tell(&**hook))) {
                metrics::hook_panicked();
                tracing::error!(panic = panic_text(&*panic), "a hook panicked");
            }
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooks({})", self.0.len())
    }
}
