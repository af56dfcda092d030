use std::collections::BTreeMap;
use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// Which jobs the node runs, and how many at once.
    pub struct WorkerConfig in "worker" {
        /// The queues that the node polls. If unset, it polls all queues. It always polls `system`,
        /// unless `system_concurrency` is 0.
        queues: Option<Vec<String>>, example "[\"images\", \"mail\"]", setting "queue";

        /// The maximum number of bodies that run at once, not counting those of pools.
        concurrency: Option<usize>, default 32;

        /// The number of slots that are reserved for the jobs of the queue `system`. With 0, none
        /// are.
        system_concurrency: Option<usize>, default 2;

        /// Whether the node also runs jobs that require no capability. `false` keeps a node with
        /// rare hardware free for the jobs that require it.
        untagged: Option<bool>, default true;

        /// The maximum number of claims that the node holds beyond the running ones, while jobs are
        /// very short. With 0, the node claims only for free slots.
        prefetch: Option<usize>, default 960;

        /// How long a prefetched claim may wait for a slot before the node hands it back; at most
        /// half of `cluster.start_timeout`.
        prefetch_ttl: Option<Duration> as "duration", default "5s";

        /// Whether the node reads a payload when its body is about to begin, instead of with the
        /// claim. Useful for large payloads.
        lazy_payloads: Option<bool>, default false;

        /// How long a job waits until its priority counts as one level higher. With `"0s"`, waiting
        /// raises no priority.
        aging: Option<Duration> as "duration", default "15m";
    }
    with {
        /// Pools by name. Each has its own slots for some of the node's jobs.
        pools: BTreeMap<String, PoolConfig>,
    }
}

section! {
    /// A pool: slots that are reserved for some of the node's jobs. It selects them by `queues`, by
    /// `kinds` or by `capabilities`.
    pub struct PoolConfig in "worker.pools.NAME" {
        /// The maximum number of bodies that run at once. It must be set.
        concurrency: Option<usize>, example "4";

        /// The queues whose jobs the pool runs.
        queues: Option<Vec<String>>, example "[\"media\"]";

        /// The kinds of the jobs that the pool runs.
        kinds: Option<Vec<String>>, example "[\"resize\"]";

        /// The capabilities of the pool. It runs the jobs that require one of them.
        capabilities: Option<Vec<String>>, example "[\"gpu\"]";

        /// Whether the pool runs jobs that require no capability; `true` if unset. With `false`,
        /// the node leaves such jobs of the pool's queues or kinds to other nodes.
        untagged: Option<bool>, example "false";

        /// The maximum number of claims that the pool holds beyond the running ones. If unset, 30
        /// for each slot, at most 960.
        prefetch: Option<usize>, example "0";
    }
}
