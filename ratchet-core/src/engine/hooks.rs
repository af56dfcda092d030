//! Hooks: the application hears what becomes of jobs on a node.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::panic_text::panic_text;
use crate::id::NodeId;
use crate::metrics;
use crate::model::{Claim, Settlement};
use crate::name::Name;

/// Hears what happens on a node: for metrics, alerts and tests. Every method does nothing unless it
/// is overridden. See [`NodeBuilder::hook`](crate::NodeBuilder::hook).
///
/// # Contract
/// - The end of a claim is told after the store has it, once by the node that wrote it. A process
///   that dies between the write and the call has told nobody, nor does one that loses the answer
///   with which it failed a job for its crashes: what must not be missed belongs into the body, into a
///   job of its own, or is read from the store.
/// - A body runs at least once, so a job may be told to have started more than once. After each
///   [`job_started`](Self::job_started) comes one [`job_ended`](Self::job_ended) or
///   [`job_lost`](Self::job_lost), unless the process dies or the run of the node is dropped.
/// - Only what this node does is told: not what waiting jobs are put through from elsewhere
///   (cancelled, paused, purged), and not that another node took a claim back.
/// - A cancellation that reaches the database while the body returns is not known here: then the end
///   that is told is the body's, and the job is `Cancelled`.
/// - Hooks are called in the order in which they were added, between two pieces of the node's work,
///   while no connection to the database is held. They must return at once: one that waits holds
///   settlements up. For more, send to a channel or spawn a task.
/// - A hook that panics is logged, and harms neither the job, nor the node, nor the other hooks.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use ratchet_core::model::{Claim, Outcome, Settlement};
/// use ratchet_core::{MemoryStore, NodeHook, Ratchet};
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
    /// The node joined the cluster and begins to claim.
    fn node_joined(&self, node: NodeId, label: &Name) {
        let _ = (node, label);
    }

    /// The node has drained and left.
    fn node_left(&self, node: NodeId, label: &Name) {
        let _ = (node, label);
    }

    /// A body begins.
    fn job_started(&self, claim: &Claim) {
        let _ = claim;
    }

    /// A claim has ended, and the store has it: `end` says how. A dead letter is
    /// [`Outcome::Failed`](crate::model::Outcome::Failed).
    ///
    /// Told for every body that began, and for jobs that ended without a body: cancelled before, a
    /// payload that does not decode, lost with its node too often. Then `end.ran_for` is none.
    fn job_ended(&self, claim: &Claim, end: &Settlement) {
        let _ = (claim, end);
    }

    /// The job was taken away from the node while its body ran: how the body ended does not count,
    /// and the job runs again elsewhere.
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

    /// Tells every hook something.
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
