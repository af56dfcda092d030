use std::time::Duration;

use ratchet_core::Retain;

use crate::section::section;
use crate::value::{duration, retain};

section! {
    /// How nodes know of each other, and who leads. All nodes of a cluster should agree.
    pub struct ClusterConfig in "cluster" {
        /// How often the node gives a sign of life while something depends on it.
        heartbeat_interval: Option<Duration> as "duration", default "5s";

        /// How seldom at most a node does so that holds no job and leads in nothing; at most 60 s.
        heartbeat_max: Option<Duration> as "duration", default "30s";

        /// How long nodes must be silent to count as dead; at least three heartbeat intervals.
        dead_after: Option<Duration> as "duration", default "15s";

        /// How long a claim may wait for its body to begin.
        start_timeout: Option<Duration> as "duration", default "5m";

        /// How many lost claims a job survives: one more makes it a dead letter, so by default the
        /// fourth.
        max_crashes: Option<u32>, default 3;

        /// How long this node lets others take over first after a leader has vanished.
        takeover_delay: Option<Duration> as "duration", default "0s";

        /// How often a leader renews its lock, and others look whether they can lead.
        leader_heartbeat: Option<Duration> as "duration", default "3s", setting "leader_timings.heartbeat";

        /// How long one renewal may take. With `leader_heartbeat` it is less than `fence_timeout`.
        renew_timeout: Option<Duration> as "duration", default "2s", setting "leader_timings.renew_timeout";

        /// How long after sending its last renewal the leader still counts as the leader.
        fence_timeout: Option<Duration> as "duration", default "8s", setting "leader_timings.fence_timeout";

        /// How long what rides on leadership may take to stop. With `fence_timeout` and a watchdog
        /// tick of a tenth of it, at most 1 s, it is not more than `ttl`.
        teardown: Option<Duration> as "duration", default "2s", setting "leader_timings.teardown";

        /// How long the lock of a leader lasts without renewal: the longest time without a leader
        /// after a crash, but for one heartbeat.
        ttl: Option<Duration> as "duration", default "12s", setting "leader_timings.ttl";

        /// The queues whose backlog the leader reports as metrics, for autoscalers; at most 50.
        measured_queues: Option<Vec<String>>, example "[\"images\", \"mail\"]";

        /// Whether definitions of recurring jobs are deleted, when the node starts, that a program
        /// declared before and this one does not. Only where all nodes run the same program.
        retire_recurring: Option<bool>, default false;
    }
    with {
        /// The retention of finished jobs.
        retention: RetentionConfig,
    }
}

section! {
    /// The retention of finished jobs. Ages count from the end of the job.
    pub struct RetentionConfig in "cluster.retention" {
        /// What becomes of jobs that succeeded: `"forever"`, an age at which they are deleted, or
        /// `"archive after"` and an age.
        succeeded: Option<Retain> as "retain", default "1d", setting "retention.succeeded";

        /// The retention of dead letters.
        failed: Option<Retain> as "retain", default "90d", setting "retention.failed";

        /// The retention of cancelled jobs.
        cancelled: Option<Retain> as "retain", default "90d", setting "retention.cancelled";

        /// The age at which archived jobs are deleted; counted from the end of the job. Unset, they
        /// stay.
        archive: Option<Duration> as "duration", example "\"365d\"", setting "retention.archive";
    }
}
