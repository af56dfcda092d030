use crate::handler::Job;

/// The queue for the engine's own jobs, and for jobs that an operator depends on. Every node serves
/// it with [slots of its own](crate::NodeBuilder::system_concurrency).
pub const SYSTEM_QUEUE: &str = "system";

/// A bulkhead: a number of slots that run only some of the node's jobs.
///
/// A pool has its own slots, its own prefetch and its own poller, so nothing that happens in one
/// pool delays another: a flood of slow jobs fills only the slots of its own pool. Use a pool also
/// to limit how many bodies of a queue, of a kind, or with a required capability run at once on a
/// node.
///
/// # Which pool a job belongs to
/// A pool selects jobs by one of three criteria: [queues](Self::queues), [kinds](Self::kind) or
/// required [capabilities](Self::capabilities). Each job that the node may run belongs to the first
/// pool that selects it, in this order: the pool of the queue [`SYSTEM_QUEUE`], then the pools in
/// the order in which they were added, and last the node's default pool. The default pool has the
/// slots of [`NodeBuilder::concurrency`](crate::NodeBuilder::concurrency) and takes the rest. If
/// nothing is left for the default pool, the node has none.
///
/// # What a pool costs
/// Each pool makes its own claim calls. An idle node with three pools makes three claim calls per
/// poll interval instead of one. A pool without a free slot makes none.
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
    /// Creates a pool with this name. The pool needs a selection and a concurrency, which are
    /// checked when the node is built. The names `default` and `system` are reserved for the node's
    /// own pools.
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

    /// Selects the jobs of these queues, which the node must poll.
    pub fn queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        self.queues = queues.into_iter().map(str::to_owned).collect();
        self
    }

    /// Adds the jobs of this type, which the node must register, under its kind and its aliases.
    pub fn kind<J: Job>(mut self) -> Self {
        let names = [J::KIND].into_iter().chain(J::ALIASES.iter().copied());
        self.kinds.extend(names.map(str::to_owned));
        self
    }

    /// Adds the jobs that are stored under exactly these kinds, which the node must register.
    pub fn kinds<'a>(mut self, kinds: impl IntoIterator<Item = &'a str>) -> Self {
        self.kinds.extend(kinds.into_iter().map(str::to_owned));
        self
    }

    /// Selects the jobs that require one of these capabilities, which the node must advertise.
    pub fn capabilities<'a>(mut self, capabilities: impl IntoIterator<Item = &'a str>) -> Self {
        self.capabilities = capabilities.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets whether the pool runs jobs that require no capability. The default is `true`.
    ///
    /// With `false`, the node leaves such jobs of the pool's queues or kinds to other nodes: no
    /// other pool of this node runs them. A pool that selects by capabilities never runs such jobs.
    pub fn untagged(mut self, taken: bool) -> Self {
        self.untagged = taken;
        self
    }

    /// Sets the maximum number of bodies that run at once. It must be set, since there is no
    /// default.
    pub fn concurrency(mut self, bodies: usize) -> Self {
        self.concurrency = bodies;
        self
    }

    /// Sets the maximum number of prefetched claims: claims that the pool holds in addition to the
    /// running ones, while jobs are very short. The default is 30 for each slot, at most 960. With
    /// 0, the pool claims only for free slots.
    pub fn prefetch(mut self, claims: usize) -> Self {
        self.prefetch = Some(claims);
        self
    }
}
