use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::maintain::heartbeat;
use super::pools::counters::NodePool;
use super::run::Run;
use super::shared::Shared;
use super::stats::{NodeStats, PoolStats};
use super::{drain, loops};
use crate::breaker::BreakerInfo;
use crate::client::Client;
use crate::cluster::Leadership;
use crate::error::{Result, StoreError};
use crate::id::NodeId;
use crate::metrics::StepDown;
use crate::model::{Enqueued, NewJob, NodeStatus};
use crate::name::Name;
use crate::shutdown::shutdown_signal;

/// Member of the cluster. A node runs jobs, and takes part in the maintenance of the cluster.
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

    /// Returns the client of this node. If a job is enqueued through this client and this node has
    /// a free slot for the job, this node is woken. Otherwise other nodes are woken.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Enqueues a job. The node does not have to be running.
    ///
    /// # Errors
    /// The same as [`Client::enqueue`].
    ///
    /// # Cancel safety
    /// The same as [`Client::enqueue`].
    pub async fn enqueue(&self, job: NewJob) -> Result<Enqueued> {
        self.shared.client.enqueue(job).await
    }

    /// Stores the resources that [`NodeBuilder::permits`](crate::NodeBuilder::permits) declares.
    /// The node also does this when it joins the cluster. If jobs need these permits, call this
    /// method before you [enqueue these jobs in transactions](Client::enqueue_in).
    ///
    /// # Errors
    /// Returns an error if the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, some of the resources may have been stored.
    pub async fn declare_permits(&self) -> Result<()> {
        self.shared.client.declare_permits().await
    }

    /// Returns the job kinds for which this node has handlers.
    #[must_use]
    pub fn kinds(&self) -> Vec<Name> {
        self.shared.registry.kinds()
    }

    /// Returns this node's leadership in `role`, or `None` if the node is not a candidate for the
    /// role.
    #[must_use]
    pub fn leadership(&self, role: &str) -> Option<Leadership> {
        self.shared.roles.leadership(role).cloned()
    }

    /// Returns the node's id. Each run has a new id. The id also changes if the cluster declares
    /// the node dead during a run and the node continues.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.node_status.identity().0
    }

    /// Returns the node's label. If no label is configured, the label is derived from the node's
    /// id.
    #[must_use]
    pub fn label(&self) -> Name {
        let shared = &self.shared;
        let label = shared.node_status.label();
        label.unwrap_or_else(|| shared.label_of(self.id()))
    }

    /// Returns the status of this node as the node itself sees it. Like all getters of this type,
    /// this method is synchronous and does no I/O.
    ///
    /// The status is `Joining` until the node has joined for the first time. After a run in which
    /// the node left the cluster regularly, the status is `Left`. After any other run, it is
    /// `Dead`.
    #[must_use]
    pub fn status(&self) -> NodeStatus {
        self.shared.node_status.identity().1
    }

    /// Returns whether the node is running. It is running from the call of
    /// [`run_until`](Self::run_until) until that call returns.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    /// Returns the number of job bodies that run on this node now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.node_status.bodies()
    }

    /// Returns the maximum number of job bodies that run on this node at once. Returns 0 if the
    /// node runs no jobs.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }

    /// Returns the roles for which this node is a candidate.
    #[must_use]
    pub fn roles(&self) -> Vec<Name> {
        let roles = self.shared.roles.all().iter();
        roles.map(|one| one.leadership.role().clone()).collect()
    }

    /// Returns the role that this node must lead before it runs jobs. Returns `None` if the node is
    /// not [active-passive](crate::NodeBuilder::active_passive).
    #[must_use]
    pub fn gate(&self) -> Option<&Name> {
        self.shared.active_in.as_ref()
    }

    /// Returns the node's totals over all its runs.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.shared.stats()
    }

    /// Returns the totals of each pool of this node, in the order in which the pools select jobs.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolStats> {
        self.shared
            .pools
            .iter()
            .map(|pool| NodePool::stats(pool))
            .collect()
    }

    /// Returns the state of each [circuit breaker](crate::CircuitBreaker) of this node, ordered by
    /// kind.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerInfo> {
        self.shared.breakers.list()
    }

    /// Runs jobs until `shutdown` is ready or an operator asks the node to drain. Then drains the
    /// node.
    ///
    /// A draining node claims no more jobs, and waits for running job bodies until the grace period
    /// ends. Then it cancels the remaining bodies, and drops those that do not stop. It hands back
    /// their jobs without counting an attempt, and leaves the cluster. While the database is
    /// unavailable, the node waits for the database. At the end, the node closes the store if it
    /// [owns the store](crate::NodeBuilder::owns_store).
    ///
    /// # Errors
    /// - [`RunError::Store`] if the node cannot join the cluster for a non-transient reason.
    /// - [`RunError::Displaced`] if another node took over this node's label.
    /// - [`RunError::AlreadyRunning`] if this node is already running.
    ///
    /// # Cancel safety
    /// Dropping the future stops the node at once, like a crash of the process. All running bodies
    /// are dropped. The cluster reclaims their jobs once it has declared the node dead.
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
        // Releases all roles that the node still leads, whatever stopped the node.
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

    /// Runs jobs until the process is asked to end or an operator asks the node to drain. Then
    /// drains the node. [`shutdown_signal`] describes how a process is asked to end. A second
    /// signal ends the process at once.
    ///
    /// # Errors
    /// The same as [`run_until`](Self::run_until).
    ///
    /// # Panics
    /// Panics outside of a Tokio runtime with I/O enabled.
    ///
    /// # Cancel safety
    /// The same as [`run_until`](Self::run_until).
    pub async fn run(&self) -> Result<(), RunError> {
        self.run_until(shutdown_signal()).await
    }
}

/// Guard of a run. When it is dropped, it ends the node's leadership and records the end of the
/// run. A node whose run was dropped then no longer counts itself as a leader. The locks of its
/// roles expire.
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

/// Guard of a running node. It ensures that a node has only one run at a time.
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

/// Reason why a node stopped running, or did not start.
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
    /// The node could not join the cluster.
    #[error("the node could not join the cluster: {0}")]
    Store(#[source] StoreError),
    /// Another node started under the same label and took over from this node. Either the other
    /// node replaces this process, or two nodes were given the same
    /// [label](crate::NodeBuilder::label) by mistake.
    #[error(
        "another node runs under the label {label} and has replaced this node; every running \
         node needs its own label"
    )]
    Displaced {
        /// Label that both nodes use.
        label: Name,
    },
    /// This node or a clone of it is already running.
    #[error("the node is already running")]
    AlreadyRunning,
}
