use crate::handler::Job;

/// Name of the queue for the engine's own jobs, and for jobs that an operator depends on. By
/// default, every node polls this queue and [reserves
/// slots](crate::NodeBuilder::system_concurrency) for it.
pub const SYSTEM_QUEUE: &str = "system";

/// A bulkhead: slots that run only some of the node's jobs.
///
/// A pool has its own slots, its own prefetched claims and its own poller. So one pool does not
/// delay another: many slow jobs fill only the slots of their own pool. A pool also limits how many
/// bodies of a queue, of a kind, or with a required capability run at once on a node.
///
/// # Which pool a job belongs to
/// A pool selects jobs by one of three criteria: [queues](Self::queues), [kinds](Self::kind) or
/// required [capabilities](Self::capabilities). Each job that the node may run belongs to the first
/// pool that selects it, in this order:
///
/// 1. the pool of the queue [`SYSTEM_QUEUE`]
/// 2. the added pools, in the order in which they were added
/// 3. the node's default pool, which runs all remaining jobs
///
/// [`NodeBuilder::concurrency`](crate::NodeBuilder::concurrency) sets the number of slots of the
/// default pool. If no jobs remain for the default pool, the node has none.
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
    /// Creates a pool with this name. The pool also needs a criterion that selects its jobs, and a
    /// concurrency. Both are checked when the node is built. The names `default` and `system` are
    /// reserved.
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

    /// Selects the jobs of these queues. The node must poll these queues.
    pub fn queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        self.queues = queues.into_iter().map(str::to_owned).collect();
        self
    }

    /// Adds the jobs of type `J`, under its kind and its aliases. The type must be registered at
    /// the node.
    pub fn kind<J: Job>(mut self) -> Self {
        let names = [J::KIND].into_iter().chain(J::ALIASES.iter().copied());
        self.kinds.extend(names.map(str::to_owned));
        self
    }

    /// Adds the jobs that are stored under these kinds. Aliases are not added. The kinds must be
    /// registered at the node.
    pub fn kinds<'a>(mut self, kinds: impl IntoIterator<Item = &'a str>) -> Self {
        self.kinds.extend(kinds.into_iter().map(str::to_owned));
        self
    }

    /// Selects the jobs that require one of these capabilities. The node must advertise these
    /// capabilities.
    pub fn capabilities<'a>(mut self, capabilities: impl IntoIterator<Item = &'a str>) -> Self {
        self.capabilities = capabilities.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets whether the pool runs jobs that require no capability. The default is `true`.
    ///
    /// With `false`, the jobs of the pool's queues or kinds that require no capability do not run
    /// on this node: no other pool of the node runs them either. A pool that selects by
    /// capabilities never runs jobs without a capability.
    pub fn untagged(mut self, taken: bool) -> Self {
        self.untagged = taken;
        self
    }

    /// Sets the maximum number of job bodies that run at once in this pool. There is no default, so
    /// this setting is required.
    pub fn concurrency(mut self, bodies: usize) -> Self {
        self.concurrency = bodies;
        self
    }

    /// Sets the maximum number of prefetched claims. While jobs are very short, the pool holds
    /// these claims in addition to the running jobs. The default is 30 per slot, at most 960. With
    /// 0, the pool claims jobs only for free slots.
    pub fn prefetch(mut self, claims: usize) -> Self {
        self.prefetch = Some(claims);
        self
    }
}
