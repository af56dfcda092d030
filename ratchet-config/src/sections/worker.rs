use std::collections::BTreeMap;
use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// Which jobs the node runs, and how many at once.
    pub struct WorkerConfig in "worker" {
        /// Polls only these queues; unset, all. `system` is always among them.
        queues: Option<Vec<String>>, example "[\"images\", \"mail\"]", setting "queue";

        /// How many bodies run at once, those of pools not counted.
        concurrency: Option<usize>, default 32;

        /// How many slots are reserved for the jobs of the queue `system`; 0 reserves none.
        system_concurrency: Option<usize>, default 2;

        /// Whether jobs that require no capability are taken. `false` keeps a node with rare
        /// hardware free for the jobs that require it.
        untagged: Option<bool>, default true;

        /// How many claims are held beyond the running ones while jobs are very short; 0 claims
        /// only for free slots.
        prefetch: Option<usize>, default 960;

        /// How long a prefetched claim may wait for a slot; at most half of
        /// `cluster.start_timeout`.
        prefetch_ttl: Option<Duration> as "duration", default "5s";

        /// Whether payloads are read when bodies are about to begin and not with the claim: for
        /// large payloads.
        lazy_payloads: Option<bool>, default false;

        /// How long a job waits until it counts as one priority higher; `"0s"`: never.
        aging: Option<Duration> as "duration", default "15m";
    }
    with {
        /// Pools by name. Each has its own slots for some of the node's jobs.
        pools: BTreeMap<String, PoolConfig>,
    }
}

section! {
    /// Slots of their own for some of the node's jobs. A pool selects by `queues`, by `kinds` or by
    /// `capabilities`.
    pub struct PoolConfig in "worker.pools.NAME" {
        /// How many bodies run at once. It must be set.
        concurrency: Option<usize>, example "4";

        /// Takes the jobs of these queues.
        queues: Option<Vec<String>>, example "[\"media\"]";

        /// Takes the jobs of these kinds.
        kinds: Option<Vec<String>>, example "[\"resize\"]";

        /// Takes the jobs that require one of these capabilities.
        capabilities: Option<Vec<String>>, example "[\"gpu\"]";

        /// Whether the pool takes jobs that require no capability; unset, yes. With `false` the
        /// node leaves those of the pool's queues or kinds to other nodes.
        untagged: Option<bool>, example "false";

        /// How many claims are held beyond the running ones. Unset, 30 for each slot, but no more
        /// than 960.
        prefetch: Option<usize>, example "0";
    }
}
