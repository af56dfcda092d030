use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// How often the node polls the database.
    pub struct PollConfig in "poll" {
        /// The shortest delay between two polls for jobs.
        min: Option<Duration> as "duration", default "100ms", setting "poll_interval.min";

        /// The longest delay between two polls of an idle node, and between two searches of the
        /// leader for due jobs. A job whose wakeup is lost waits for up to twice this time. An idle
        /// node that hears from the leader polls 15 times less often.
        max: Option<Duration> as "duration", default "1s", setting "poll_interval.max";

        /// How often the node looks for claims of dead nodes.
        reclaim_interval: Option<Duration> as "duration", default "5s";

        /// The longest time before the node looks for recurring definitions that another process
        /// has stored.
        recurring_interval: Option<Duration> as "duration", default "5s";

        /// How often the node looks for old finished jobs.
        maintenance_interval: Option<Duration> as "duration", default "1m";
    }
}
