use std::time::Duration;

use ratchet_core::Retain;

use crate::section::section;
use crate::value::{duration, retain};

section! {
    /// How nodes detect each other's death, and how a leader is elected. All nodes of a cluster
    /// should have the same values.
    pub struct ClusterConfig in "cluster" {
        /// The interval between heartbeats of a node that holds jobs, leads other nodes, is
        /// starting or is draining.
        heartbeat_interval: Option<Duration> as "duration", default "5s";

        /// The longest interval between heartbeats of a node that holds no job and leads no other
        /// node; at most 1 h.
        heartbeat_max: Option<Duration> as "duration", default "30s";

        /// How long a node must be silent to count as dead; at least three times
        /// `heartbeat_interval`.
        dead_after: Option<Duration> as "duration", default "15s";

        /// How long a claimed job may wait until its body begins.
        start_timeout: Option<Duration> as "duration", default "5m";

        /// How many lost claims a job survives. The next loss makes it a dead letter: by default
        /// the fourth.
        max_crashes: Option<u32>, default 3;

        /// How long this node waits for other nodes to take over after a leader has vanished.
        takeover_delay: Option<Duration> as "duration", default "0s";

        /// How often a leader renews its lock, and how often the other candidates try to acquire
        /// it.
        leader_heartbeat: Option<Duration> as "duration", default "3s", setting "leader_timings.heartbeat";

        /// The timeout of one renewal. The sum of `leader_heartbeat` and this timeout must be less
        /// than `fence_timeout`.
        renew_timeout: Option<Duration> as "duration", default "2s", setting "leader_timings.renew_timeout";

        /// How long after sending a renewal the leader still trusts its leadership.
        fence_timeout: Option<Duration> as "duration", default "8s", setting "leader_timings.fence_timeout";

        /// How long work that depends on leadership may take to stop. The sum of `fence_timeout`,
        /// this time and a watchdog tick must not exceed `ttl`; the tick is a tenth of
        /// `fence_timeout`, at most 1 s.
        teardown: Option<Duration> as "duration", default "2s", setting "leader_timings.teardown";

        /// The TTL of a leader's lock. After a crash, a role has no leader for at most this time
        /// plus one `leader_heartbeat`.
        ttl: Option<Duration> as "duration", default "12s", setting "leader_timings.ttl";

        /// The queues whose backlog the leader reports as metrics, for autoscalers; at most 50.
        measured_queues: Option<Vec<String>>, example "[\"images\", \"mail\"]";

        /// Whether the node, when it starts, deletes recurring definitions that this program does
        /// not declare and that another node declared earlier. Use it only if all nodes run the
        /// same program.
        retire_recurring: Option<bool>, default false;
    }
    with {
        /// How long finished jobs are kept.
        retention: RetentionConfig,
    }
}

section! {
    /// How long finished jobs are kept. The age of a job counts from its end.
    pub struct RetentionConfig in "cluster.retention" {
        /// The retention of jobs that succeeded: `"forever"`, an age at which they are deleted,
        /// such as `"1d"`, or an age at which they are archived, such as `"archive after 1d"`.
        succeeded: Option<Retain> as "retain", default "1d", setting "retention.succeeded";

        /// The retention of dead letters, in the same form.
        failed: Option<Retain> as "retain", default "90d", setting "retention.failed";

        /// The retention of cancelled jobs, in the same form.
        cancelled: Option<Retain> as "retain", default "90d", setting "retention.cancelled";

        /// The age at which archived jobs are deleted, counted from the end of the job. If unset,
        /// they are kept forever.
        archive: Option<Duration> as "duration", example "\"365d\"", setting "retention.archive";
    }
}
