use std::time::Duration;

use crate::section::section;
use crate::value::duration;

section! {
    /// How often the node looks at the database.
    pub struct PollConfig in "poll" {
        /// The shortest delay between two polls for jobs.
        min: Option<Duration> as "duration", default "100ms", setting "poll_interval.min";

        /// The longest delay between two polls of an idle node, and between two looks of the leader
        /// for due jobs: a lost wakeup costs up to two of them. An idle node that hears from the
        /// leader polls 15 times less often.
        max: Option<Duration> as "duration", default "1s", setting "poll_interval.max";

        /// How often the node looks for claims whose node is gone.
        reclaim_interval: Option<Duration> as "duration", default "5s";

        /// How long at most the node sleeps before it looks for recurring definitions that another
        /// process has put.
        recurring_interval: Option<Duration> as "duration", default "5s";

        /// How often old finished jobs are looked for.
        maintenance_interval: Option<Duration> as "duration", default "1m";
    }
}
