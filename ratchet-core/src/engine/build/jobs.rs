//! Setters for the jobs that the node runs.

use std::path::Path;
use std::time::Duration;

use super::builder::NodeBuilder;
use super::environment::capabilities_in;
use super::job_types::JobTypes;
use crate::engine::settings::pool::Pool;
use crate::error::SettingProblem;
use crate::handler::Job;
use crate::priority::Aging;
use crate::route::Selection;

impl NodeBuilder {
    /// Registers one or more job types: the node runs their jobs, under their kinds and aliases. It
    /// leaves jobs of other kinds to other nodes.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet};
    /// # macro_rules! job {
    /// #     ($name:ident) => {
    /// #         #[derive(serde::Serialize, serde::Deserialize)]
    /// #         struct $name;
    /// #         impl Job for $name {
    /// #             const KIND: &'static str = stringify!($name);
    /// #             type Output = ();
    /// #             async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// #         }
    /// #     };
    /// # }
    /// # job!(Charge); job!(Ship); job!(Confirm);
    /// let builder = Ratchet::builder(Arc::new(MemoryStore::new()));
    /// let node = builder.register::<(Charge, Ship, Confirm)>().build()?;
    /// # Ok::<(), ratchet::BuildError>(())
    /// ```
    pub fn register<J: JobTypes>(self) -> Self {
        J::register_with(self)
    }

    pub(super) fn register_one<J: Job>(mut self) -> Self {
        let registered = self.registry.register::<J>();
        let problems = registered.err().into_iter().flatten();
        self.problems.extend(problems.map(SettingProblem::from));
        self
    }

    /// Adds a value that all bodies share. A body gets it by its type from
    /// [`JobContext::state`](crate::JobContext::state). A second value of the same type replaces
    /// the first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Polls only these queues, and [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE) unless
    /// [`system_concurrency`](Self::system_concurrency) is 0. By default the node polls all queues.
    pub fn queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        let queues = self.names("queue", queues);
        self.queues = Selection::Only(queues);
        self
    }

    /// Advertises these capabilities, so that the node also runs jobs that require one of them.
    pub fn capabilities<'a>(mut self, capabilities: impl IntoIterator<Item = &'a str>) -> Self {
        self.capabilities = self.names("capability", capabilities);
        self
    }

    /// Reads the capabilities from a file, in which commas or line breaks separate them and `#`
    /// begins a comment. They replace the capabilities that were set before.
    pub fn capabilities_from_file(mut self, path: impl AsRef<Path>) -> Self {
        match capabilities_in(path.as_ref()) {
            Ok(found) => self.capabilities(found.iter().map(String::as_str)),
            Err(problem) => {
                let problem = SettingProblem::new(&["capabilities_file"], problem);
                self.problems.push(problem);
                self
            }
        }
    }

    /// Sets whether the node runs jobs that require no capability. The default is `true`.
    ///
    /// With `false`, the node runs only jobs that require one of its
    /// [`capabilities`](Self::capabilities), and leaves all others to other nodes. Use it for nodes
    /// with rare hardware. The slots of [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE) run the jobs of that
    /// queue in any case, unless [`system_concurrency`](Self::system_concurrency) is 0.
    /// [`Pool::untagged`] sets the same for one pool.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Render;
    /// # impl Job for Render {
    /// #     const KIND: &'static str = "render";
    /// #     type Output = ();
    /// #     async fn run(self, _ctx: JobContext) -> JobResult<()> { Ok(()) }
    /// # }
    /// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
    ///     .register::<Render>()
    ///     .capabilities(["gpu"])
    ///     .untagged(false)
    ///     .build()?;
    /// # Ok::<(), ratchet::BuildError>(())
    /// ```
    pub fn untagged(mut self, taken: bool) -> Self {
        self.config.untagged = taken;
        self
    }

    /// Sets the maximum number of bodies that run at once, not counting those of other
    /// [pools](Pool). The default is 32.
    pub fn concurrency(mut self, bodies: usize) -> Self {
        self.config.concurrency = bodies;
        self
    }

    /// Adds a pool, which gives some of the node's jobs slots of their own; see [`Pool`].
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Limits how many bodies of this queue run at once, by a [`Pool`] of its own. The pool is
    /// named `queue:` followed by the queue.
    pub fn queue_concurrency(self, queue: &str, bodies: usize) -> Self {
        let pool = Pool::new(&format!("queue:{queue}")).queues([queue]);
        self.pool(pool.concurrency(bodies))
    }

    /// Limits how many bodies of this type run at once, by a [`Pool`] of its own. The pool is named
    /// `kind:` followed by the kind.
    pub fn kind_concurrency<J: Job>(self, bodies: usize) -> Self {
        let pool = Pool::new(&format!("kind:{}", J::KIND)).kind::<J>();
        self.pool(pool.concurrency(bodies))
    }

    /// Reserves this many slots for the jobs of [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE), so that no
    /// other load can delay them. The node then polls that queue whatever its other queues are. The
    /// default is 2. With 0, no slot is reserved, and the queue is treated like any other.
    pub fn system_concurrency(mut self, bodies: usize) -> Self {
        self.config.system_concurrency = bodies;
        self
    }

    /// Sets the maximum number of prefetched claims: claims that the node holds in addition to the
    /// running ones, while jobs are very short. The default is 960. With 0, the node claims only
    /// for free slots. Other pools have a [`prefetch`](Pool::prefetch) of their own.
    pub fn prefetch(mut self, claims: usize) -> Self {
        self.config.prefetch = claims;
        self
    }

    /// Sets how long a prefetched claim may wait for a slot before it is handed back. The default
    /// is 5 s. The maximum is half of the start timeout.
    pub fn prefetch_ttl(mut self, ttl: Duration) -> Self {
        self.config.prefetch_ttl = ttl;
        self
    }

    /// Sets whether the node reads payloads when their bodies are about to begin, instead of with
    /// the claim. This helps with large payloads.
    pub fn lazy_payloads(mut self, lazy: bool) -> Self {
        self.config.lazy_payloads = lazy;
        self
    }

    /// Sets how fast the priority of a job rises while the job waits. The default is one level per
    /// 15 minutes.
    pub fn aging(mut self, aging: Aging) -> Self {
        self.config.aging = aging;
        self
    }

    /// Sets how long a claim may wait for its body to begin. The default is 5 min.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.config.start_timeout = timeout;
        self
    }

    /// Sets how many lost claims a job survives; the next loss makes it a dead letter. The default
    /// is 3, so the fourth loss makes it a dead letter. With 0, the first loss does. A claim counts
    /// as lost if its node died or its body stalled, but not if it was handed back.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.config.max_crashes = crashes;
        self
    }
}
