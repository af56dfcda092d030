use crate::handler::Job;

/// The queue of the engine's own jobs and of those an operator depends on. Every node serves it
/// with [slots of its own](crate::NodeBuilder::system_concurrency).
pub const SYSTEM_QUEUE: &str = "system";

/// A bulkhead: slots that run some of a node's jobs and nothing else.
///
/// A pool has its own slots, its own room for claims and its own poller, so nothing that happens
/// in one pool delays another: a flood of slow jobs fills the slots of its pool and no more. A pool
/// is also how the number of bodies that run at once on a node is limited by queue, by kind or by
/// required capability.
///
/// # Which pool a job belongs to
/// A pool takes by one of three things: [queues](Self::queues), [kinds](Self::kind) or required
/// [capabilities](Self::capabilities). Of all jobs the node may run, each belongs to the first pool
/// that takes it, in this order: the pool of the queue [`SYSTEM_QUEUE`], the pools in the order in
/// which they were given to the node, and last the node's default pool, which has the slots of
/// [`NodeBuilder::concurrency`](crate::NodeBuilder::concurrency) and takes the rest. Where nothing
/// is left for the default pool there is none.
///
/// # What a pool costs
/// Each pool claims for itself: an idle node with three pools makes three claim calls per poll
/// interval instead of one. A pool without room makes none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use ratchet::{Job, JobContext, JobResult, MemoryStore, Pool, Ratchet};
/// # use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Render(u32);
///
/// impl Job for Render {
///     const KIND: &'static str = "render";
///     type Output = ();
///     async fn run(self, _ctx: JobContext) -> JobResult<()> {
///         Ok(())
///     }
/// }
///
/// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
///     .register::<Render>()
///     .capabilities(["gpu"])
///     .concurrency(16)
///     .pool(Pool::new("gpu").capabilities(["gpu"]).concurrency(2))
///     .queue_concurrency("media", 4) // short for a pool of this queue
///     .build()?;
/// let pools = node.pools();
/// let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
/// assert_eq!(names, ["system", "gpu", "queue:media", "default"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Pool {
    pub(crate) name: String,
    pub(crate) queues: Vec<String>,
    pub(crate) kinds: Vec<String>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) untagged: bool,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: Option<usize>,
}

impl Pool {
    /// Begins a pool. It needs a selection and a concurrency; whether it works is checked when the
    /// node is built. `default` and `system` are the names of the node's own pools.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            queues: Vec::new(),
            kinds: Vec::new(),
            capabilities: Vec::new(),
            untagged: true,
            concurrency: 0,
            prefetch: None,
        }
    }

    /// Takes the jobs of these queues, which the node must poll.
    pub fn queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        self.queues = queues.into_iter().map(str::to_owned).collect();
        self
    }

    /// Takes the jobs of this type too, which the node must register, under all of its names.
    pub fn kind<J: Job>(mut self) -> Self {
        let names = [J::KIND].into_iter().chain(J::ALIASES.iter().copied());
        self.kinds.extend(names.map(str::to_owned));
        self
    }

    /// Takes the jobs of these kinds too, which the node must register, under these names only.
    pub fn kinds<'a>(mut self, kinds: impl IntoIterator<Item = &'a str>) -> Self {
        self.kinds.extend(kinds.into_iter().map(str::to_owned));
        self
    }

    /// Takes the jobs that require one of these capabilities, which the node must advertise.
    pub fn capabilities<'a>(mut self, capabilities: impl IntoIterator<Item = &'a str>) -> Self {
        self.capabilities = capabilities.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets whether the pool takes jobs that require no capability, which is the default. With
    /// `false` the node leaves those of the pool's queues or kinds to other nodes: no other pool of
    /// this node takes them. A pool that selects by capabilities never takes them.
    pub fn untagged(mut self, taken: bool) -> Self {
        self.untagged = taken;
        self
    }

    /// Runs at most this many bodies at once. There is no default.
    pub fn concurrency(mut self, bodies: usize) -> Self {
        self.concurrency = bodies;
        self
    }

    /// Holds at most this many claims beyond the running ones, while jobs are very short. Default
    /// 30 for each slot, but no more than 960; 0 claims only for free slots.
    pub fn prefetch(mut self, claims: usize) -> Self {
        self.prefetch = Some(claims);
        self
    }
}
