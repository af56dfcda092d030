use std::time::Duration;

use ratchet_core::Retain;

use crate::section::section;
use crate::value::{duration, retain};

section! {
    /// How nodes detect that another node is dead, and how they elect a leader. All nodes of a
    /// cluster should have the same values.
    pub struct ClusterConfig in "cluster" {
        /// Interval between heartbeats of a node that holds jobs, leads other nodes, is starting or
        /// is draining.
        heartbeat_interval: Option<Duration> as "duration", default "5s";

        /// Longest interval between heartbeats of a node that holds no job and leads no other node.
        /// At most 1 h.
        heartbeat_max: Option<Duration> as "duration", default "30s";

        /// Time without heartbeats after which a node counts as dead. Must be at least three times
        /// `heartbeat_interval`.
        dead_after: Option<Duration> as "duration", default "15s";

        /// Maximum time between the claim of a job and the start of its body.
        start_timeout: Option<Duration> as "duration", default "5m";

        /// Number of lost claims after which a job still runs again. One more lost claim makes the
        /// job a dead letter. A claim is lost if its node died or its body stalled.
        max_crashes: Option<u32>, default 3;

        /// Time that this node waits before it takes over from a vanished leader, so that other
        /// nodes can take over first.
        takeover_delay: Option<Duration> as "duration", default "0s";

        /// Interval at which a leader renews its lock, and at which the other candidates try to
        /// acquire it.
        leader_heartbeat: Option<Duration> as "duration", default "3s", setting "leader_timings.heartbeat";

        /// Timeout of one renewal of the lock. The sum of `leader_heartbeat` and this timeout must
        /// be less than `fence_timeout`.
        renew_timeout: Option<Duration> as "duration", default "2s", setting "leader_timings.renew_timeout";

        /// Time for which a leader considers itself the leader after it sent the last successful
        /// renewal.
        fence_timeout: Option<Duration> as "duration", default "8s", setting "leader_timings.fence_timeout";

        /// Maximum time for stopping the work of a leader whose leadership has ended. The sum of
        /// `fence_timeout`, this time and one watchdog tick must not exceed `ttl`. The tick is a
        /// tenth of `fence_timeout`, at most 1 s.
        teardown: Option<Duration> as "duration", default "2s", setting "leader_timings.teardown";

        /// TTL of a leader's lock. After a leader's node crashes, its role has no leader for at
        /// most this time plus one `leader_heartbeat`.
        ttl: Option<Duration> as "duration", default "12s", setting "leader_timings.ttl";

        /// Queues whose backlog the leader reports as metrics, for autoscalers. At most 50 queues.
        measured_queues: Option<Vec<String>>, example "[\"images\", \"mail\"]";

        /// Whether the node, when it starts, deletes each recurring definition that another node
        /// declared earlier and that this program does not declare. Set this to `true` only if all
        /// nodes run the same program.
        retire_recurring: Option<bool>, default false;
    }
    with {
        /// How long finished jobs are kept.
        retention: RetentionConfig,
    }
}

section! {
    /// How long finished jobs are kept. The time counts from the end of the job.
    pub struct RetentionConfig in "cluster.retention" {
        /// How long jobs that succeeded are kept. With `"forever"`, they are never deleted. With a
        /// duration such as `"1d"`, they are deleted at that age. With `"archive after 1d"`, they
        /// are moved to the archive at that age.
        succeeded: Option<Retain> as "retain", default "1d", setting "retention.succeeded";

        /// How long dead letters are kept, in the same format as `succeeded`.
        failed: Option<Retain> as "retain", default "90d", setting "retention.failed";

        /// How long cancelled jobs are kept, in the same format as `succeeded`.
        cancelled: Option<Retain> as "retain", default "90d", setting "retention.cancelled";

        /// Age at which archived jobs are deleted, counted from the end of the job. If unset,
        /// archived jobs are kept forever.
        archive: Option<Duration> as "duration", example "\"365d\"", setting "retention.archive";
    }
}
