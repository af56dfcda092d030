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
    /// Lets the node run jobs of this type, or of these types, under all their names; jobs of other
    /// kinds are left to other nodes.
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

    /// Gives the bodies a value, which they get by its type from
    /// [`JobContext::state`](crate::JobContext::state). A second value of a type replaces the
    /// first.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Polls only these queues, and [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE) unless
    /// [`system_concurrency`](Self::system_concurrency) is 0; the default is all.
    pub fn queues<'a>(mut self, queues: impl IntoIterator<Item = &'a str>) -> Self {
        let queues = self.names("queue", queues);
        self.queues = Selection::Only(queues);
        self
    }

    /// Advertises these capabilities: the node then also runs jobs that require one of them.
    pub fn capabilities<'a>(mut self, capabilities: impl IntoIterator<Item = &'a str>) -> Self {
        self.capabilities = self.names("capability", capabilities);
        self
    }

    /// Takes the capabilities from a file: separated by commas or new lines, `#` begins a comment.
    /// They replace what was set before.
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

    /// Sets whether the node takes jobs that require no capability, which is the default. A node
    /// with rare hardware sets `false`: it then leaves the jobs that any node can run to the
    /// others, and takes only those that require one of its [`capabilities`](Self::capabilities).
    /// The slots of [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE) take its jobs either way, unless
    /// [`system_concurrency`](Self::system_concurrency) is 0. [`Pool::untagged`] sets it for one
    /// pool.
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

    /// Runs at most this many bodies at once, those of other [pools](Pool) not counted. Default 32.
    pub fn concurrency(mut self, bodies: usize) -> Self {
        self.config.concurrency = bodies;
        self
    }

    /// Gives some of the node's jobs slots of their own; see [`Pool`] for which.
    pub fn pool(mut self, pool: Pool) -> Self {
        self.pools.push(pool);
        self
    }

    /// Runs at most this many bodies of this queue at once, in a [`Pool`] of its own. It is named
    /// `queue:` and the queue.
    pub fn queue_concurrency(self, queue: &str, bodies: usize) -> Self {
        let pool = Pool::new(&format!("queue:{queue}")).queues([queue]);
        self.pool(pool.concurrency(bodies))
    }

    /// Runs at most this many bodies of this type at once, in a [`Pool`] of its own. It is named
    /// `kind:` and the kind.
    pub fn kind_concurrency<J: Job>(self, bodies: usize) -> Self {
        let pool = Pool::new(&format!("kind:{}", J::KIND)).kind::<J>();
        self.pool(pool.concurrency(bodies))
    }

    /// Reserves this many slots for the jobs of [`SYSTEM_QUEUE`](crate::SYSTEM_QUEUE), which the
    /// node then polls whatever its other queues are: no load of others can keep these jobs
    /// waiting. Default 2; 0 reserves none, and the queue is like any other.
    pub fn system_concurrency(mut self, bodies: usize) -> Self {
        self.config.system_concurrency = bodies;
        self
    }

    /// Holds at most this many claims beyond the running ones, while jobs are very short. Default
    /// 960; 0 claims only for free slots. Other pools have a [`prefetch`](Pool::prefetch) of their
    /// own.
    pub fn prefetch(mut self, claims: usize) -> Self {
        self.config.prefetch = claims;
        self
    }

    /// Sets how long a prefetched claim may wait for a slot before it is handed back. Default 5 s;
    /// at most half of the start timeout.
    pub fn prefetch_ttl(mut self, ttl: Duration) -> Self {
        self.config.prefetch_ttl = ttl;
        self
    }

    /// Reads payloads when bodies are about to begin, not with the claim: for large payloads.
    pub fn lazy_payloads(mut self, lazy: bool) -> Self {
        self.config.lazy_payloads = lazy;
        self
    }

    /// Sets how waiting raises priority. Default: one level per 15 minutes.
    pub fn aging(mut self, aging: Aging) -> Self {
        self.config.aging = aging;
        self
    }

    /// Sets how long a claim may wait for its body to begin. Default 5 min.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.config.start_timeout = timeout;
        self
    }

    /// Sets how many lost claims a job survives: one more makes it a dead letter. Default 3, so the
    /// fourth loss does; 0 makes the first loss a dead letter. Claims count as lost when their node
    /// died or their body stalled, not when they are handed back.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.config.max_crashes = crashes;
        self
    }
}
