use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::maintain::heartbeat;
use super::pools::counters::NodePool;
use super::run::Run;
use super::shared::Shared;
use super::stats::{NodeStats, PoolStats};
use super::{drain, loops};
use crate::client::Client;
use crate::cluster::Leadership;
use crate::error::{Result, StoreError};
use crate::id::NodeId;
use crate::metrics::StepDown;
use crate::model::{Enqueued, NewJob, NodeStatus};
use crate::name::Name;
use crate::shutdown::shutdown_signal;

/// A member of the cluster, which runs jobs and shares the maintenance of the cluster.
///
/// Clones refer to the same node.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet};
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Greet(String);
///
/// impl Job for Greet {
///     const KIND: &'static str = "greet";
///     type Output = ();
///     async fn run(self, _ctx: JobContext) -> JobResult<()> {
///         println!("Hello {}", self.0);
///         Ok(())
///     }
/// }
///
/// let node = Ratchet::builder(Arc::new(MemoryStore::new())).register::<Greet>().build()?;
/// node.enqueue(Greet("Ada".into()).into_job()).await?;
/// node.run_until(tokio::time::sleep(Duration::from_millis(50))).await?;
/// assert_eq!(node.stats().settled, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) running: Arc<AtomicBool>,
}

impl Node {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            running: Arc::default(),
        }
    }

    /// Returns the node's client. A job that is enqueued through it wakes this node if this node
    /// has a free slot for the job, and otherwise another node.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Enqueues a job. The node need not be running.
    ///
    /// # Errors
    /// As for [`Client::enqueue`].
    ///
    /// # Cancel safety
    /// As for [`Client::enqueue`].
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        self.shared.client.enqueue(job).await
    }

    /// Creates the resources that [`NodeBuilder::permits`](crate::NodeBuilder::permits) declares in
    /// the store, as the node does when it joins. Call this method before [enqueueing jobs in
    /// transactions](Client::enqueue_in) if the jobs need these permits.
    ///
    /// # Errors
    /// A failure of the store.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the resources may have been created.
    pub async fn declare_permits(&self) -> Result<()> {
        self.shared.client.declare_permits().await
    }

    /// Returns the kinds for which the node has handlers.
    #[must_use]
    pub fn kinds(&self) -> Vec<Name> {
        self.shared.registry.kinds()
    }

    /// Returns the node's leadership in a role. `None` if the node is not a candidate for the role.
    #[must_use]
    pub fn leadership(&self, role: &str) -> Option<Leadership> {
        self.shared.roles.leadership(role).cloned()
    }

    /// Returns the node's id. The id changes with each run, and when the cluster declares the node
    /// dead during a run.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.node_status.identity().0
    }

    /// Returns the node's label: the configured one, or one that is made from its id.
    #[must_use]
    pub fn label(&self) -> Name {
        let shared = &self.shared;
        let label = shared.node_status.label();
        label.unwrap_or_else(|| shared.label_of(self.id()))
    }

    /// Returns the node's own view of its status. Synchronous and without I/O, like the other
    /// getters.
    ///
    /// The status is `Joining` until the node has joined for the first time, `Left` after a run
    /// that ended in order, and `Dead` after any other run.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        self.shared.node_status.identity().1
    }

    /// Returns whether the node is running: from the call of [`run_until`](Self::run_until) until
    /// it returns.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Returns how many bodies run on the node at present.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.node_status.bodies()
    }

    /// Returns how many bodies the node may run at once. 0 if it runs no jobs.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }

    /// Returns the roles in which the node may lead.
    #[must_use]
    pub fn roles(&self) -> Vec<Name> {
        let roles = self.shared.roles.all().iter();
        roles.map(|one| one.leadership.role().clone()).collect()
    }

    /// Returns the role in which the node must lead to run jobs. `None` unless the node is
    /// [active-passive](crate::NodeBuilder::active_passive).
    #[must_use]
    pub fn gate(&self) -> Option<&Name> {
        self.shared.active_in.as_ref()
    }

    /// Returns the totals of the node since it was built.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.shared.stats()
    }

    /// Returns the totals of each pool of the node, in the order in which the pools select jobs.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolStats> {
        self.shared
            .pools
            .iter()
            .map(|pool| NodePool::stats(pool))
            .collect()
    }

    /// Runs jobs until `shutdown` is ready or an operator asks the node to drain, then drains.
    ///
    /// A drain stops claiming and waits for running bodies, for up to the grace period. Then it
    /// cancels the remaining bodies, drops those that do not stop, hands back their jobs without
    /// counting an attempt, and deregisters the node. While the database is unavailable, the node
    /// waits for it. At the end the store is closed if the node [owns
    /// it](crate::NodeBuilder::owns_store).
    ///
    /// # Errors
    /// [`RunError::Store`] if the node cannot join for a reason that is not transient,
    /// [`RunError::Displaced`] if another node took its label, [`RunError::AlreadyRunning`].
    ///
    /// # Cancel safety
    /// Dropping the future stops everything at once, like a crash of the process: running bodies
    /// are dropped, and the cluster reclaims their jobs once it declares the node dead.
    pub async fn run_until<F: Future>(&self, shutdown: F) -> Result<(), RunError> {
        let _only = OnlyRun::begin(&self.running)?;
        let ran = self.run_alone(shutdown).await;
        if self.shared.owns_store {
            self.shared.common.calls.store().close().await;
        }
        ran
    }

    async fn run_alone<F: Future>(&self, shutdown: F) -> Result<(), RunError> {
        let run = Run::new(Arc::clone(&self.shared));
        self.shared.node_status.begin(&run.identity, &run.running);
        let _ended = Ended(&run);
        tokio::pin!(shutdown);
        tokio::select! {
            biased;
            _ = &mut shutdown => {
                // The join may already have registered the node, although its future was dropped.
                if let Err(error) = heartbeat::beat(&run.heartbeat, NodeStatus::Left).await {
                    tracing::debug!(%error, "could not report that the node is leaving");
                }
                run.identity.set_status(NodeStatus::Left);
                return Ok(());
            }
            joined = run.join() => joined.map_err(RunError::Store)?,
        }
        let (hooks, identity) = (&run.shared.hooks, &run.identity);
        hooks.tell(|hook| hook.node_joined(identity.node(), identity.label()));
        let tasks = loops::start(&run);
        tokio::select! {
            biased;
            () = run.stops.displaced.cancelled() => {}
            () = run.stops.draining.cancelled() => {}
            _ = &mut shutdown => {}
        }
        tokio::select! {
            biased;
            () = run.stops.displaced.cancelled() => {}
            () = drain::drain(&run) => {}
        }
        loops::end(tasks).await;
        // Whatever stopped the node, the roles in which it still leads are released at once.
        run.step_down().await;
        hooks.tell(|hook| hook.node_left(identity.node(), identity.label()));
        tracing::info!(target: "ratchet::node", node = %identity.node(), label = %identity.label(), "node left");
        if run.stops.displaced.is_cancelled() {
            return Err(RunError::Displaced {
                label: identity.label().clone(),
            });
        }
        Ok(())
    }

    /// Runs jobs until the process is asked to end, as described at [`shutdown_signal`], or an
    /// operator asks the node to drain; then drains. A second signal ends the process at once.
    ///
    /// # Errors
    /// As for [`run_until`](Self::run_until).
    ///
    /// # Panics
    /// Outside of a Tokio runtime with I/O enabled.
    ///
    /// # Cancel safety
    /// As for [`run_until`](Self::run_until).
    pub async fn run(&self) -> Result<(), RunError> {
        self.run_until(shutdown_signal()).await
    }
}

/// When dropped, ends the node's leadership and records the end of the run. So a node whose run was
/// dropped no longer counts as a leader; its locks expire on their own.
struct Ended<'a>(&'a Run);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        for candidacy in shared.roles.all() {
            candidacy.leadership.step_down(StepDown::Resigned);
        }
        shared.node_status.end(&self.0.identity);
    }
}

/// Ensures that a node has only one run at a time.
pub(super) struct OnlyRun<'a>(&'a AtomicBool);

impl<'a> OnlyRun<'a> {
    pub(super) fn begin(running: &'a AtomicBool) -> Result<Self, RunError> {
        if running.swap(true, Ordering::AcqRel) {
            return Err(RunError::AlreadyRunning);
        }
        Ok(Self(running))
    }
}

impl Drop for OnlyRun<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The reason why a node stopped running, or did not start.
///
/// ```
/// # async fn example(node: ratchet::Node) {
/// use ratchet::RunError;
///
/// match node.run().await {
///     Ok(()) => println!("drained"),
///     Err(RunError::Displaced { .. }) => eprintln!("another node has this node's label"),
///     Err(error) => eprintln!("{error}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The node could not join.
    #[error("the node could not join the cluster: {0}")]
    Store(#[source] StoreError),
    /// Another node started under the same label and took over. Either it replaces this process, or
    /// two nodes were given the same [label](crate::NodeBuilder::label).
    #[error("another node runs under the label {label}")]
    Displaced {
        /// The label.
        label: Name,
    },
    /// This node, or a clone of it, is already running.
    #[error("the node is already running")]
    AlreadyRunning,
}
