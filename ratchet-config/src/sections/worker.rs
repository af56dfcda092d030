use std::collections::BTreeMap;
use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// Which jobs the node runs, and how many of them at the same time.
    pub struct WorkerConfig in "worker" {
        /// Queues that the node polls. If unset, the node polls all queues. The node also polls the
        /// queue `system`, unless `system_concurrency` is 0.
        queues: Option<Vec<String>>, example "[\"images\", \"mail\"]", setting "queue";

        /// Maximum number of bodies that run at the same time. Bodies that run in pools do not
        /// count.
        concurrency: Option<usize>, default 32;

        /// Number of slots that are reserved for jobs of the queue `system`. If 0, no slots are
        /// reserved.
        system_concurrency: Option<usize>, default 2;

        /// Whether the node also runs jobs that require no capability. Set this to `false` to keep
        /// a node with rare hardware free for the jobs that require the hardware.
        untagged: Option<bool>, default true;

        /// Maximum number of prefetched claims. The node holds them in addition to the claims of
        /// running bodies, while jobs are very short. With 0, the node claims only for free slots.
        prefetch: Option<usize>, default 960;

        /// Maximum time that a prefetched claim waits for a slot. Then the node releases the claim.
        /// Must be at most half of `cluster.start_timeout`.
        prefetch_ttl: Option<Duration> as "duration", default "5s";

        /// Whether the node reads the payload of a job just before the job's body begins, instead
        /// of with the claim. This helps if payloads are large.
        lazy_payloads: Option<bool>, default false;

        /// Time that a job must wait until its priority counts as one level higher. With `"0s"`,
        /// waiting does not raise the priority.
        aging: Option<Duration> as "duration", default "15m";
    }
    with {
        /// Pools by name. Each pool has slots of its own, which run only some of the node's jobs.
        pools: BTreeMap<String, PoolConfig>,
    }
}

section! {
    /// A pool: slots that are reserved for some of the node's jobs. The pool selects these jobs by
    /// `queues`, by `kinds` or by `capabilities`.
    pub struct PoolConfig in "worker.pools.NAME" {
        /// Maximum number of bodies that run at the same time. Must be set.
        concurrency: Option<usize>, example "4";

        /// Queues whose jobs the pool runs.
        queues: Option<Vec<String>>, example "[\"media\"]";

        /// Kinds of the jobs that the pool runs.
        kinds: Option<Vec<String>>, example "[\"resize\"]";

        /// Capabilities of the pool. The pool runs the jobs that require one of these capabilities.
        capabilities: Option<Vec<String>>, example "[\"gpu\"]";

        /// Whether the pool runs jobs that require no capability. If unset, `true`. With `false`,
        /// the node leaves such jobs of the pool's queues or kinds to other nodes.
        untagged: Option<bool>, example "false";

        /// Maximum number of prefetched claims. The pool holds them in addition to the claims of
        /// running bodies. If unset, 30 for each slot, at most 960.
        prefetch: Option<usize>, example "0";
    }
}
