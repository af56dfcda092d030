use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// How often the node polls the database.
    pub struct PollConfig in "poll" {
        /// Shortest delay between two polls for jobs.
        min: Option<Duration> as "duration", default "100ms", setting "poll_interval.min";

        /// Longest delay between two polls of an idle node, and the interval at which the leader
        /// searches for due jobs. If a wakeup is lost, the job waits for up to twice this time. An
        /// idle node that receives messages from the leader polls 15 times less often.
        max: Option<Duration> as "duration", default "1s", setting "poll_interval.max";

        /// Interval at which the node searches for claims of dead nodes.
        reclaim_interval: Option<Duration> as "duration", default "5s";

        /// Longest interval at which the node searches for recurring definitions that another
        /// process has stored.
        recurring_interval: Option<Duration> as "duration", default "5s";

        /// Interval at which the node searches for finished jobs that are old enough to be deleted
        /// or archived.
        maintenance_interval: Option<Duration> as "duration", default "1m";
    }
}
