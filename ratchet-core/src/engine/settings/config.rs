use std::time::Duration;

use super::retention::{LONGEST, Retention};
use crate::cluster::LeaderTimings;
use crate::error::SettingProblem;
use crate::model::{NodeRecord, ReclaimRequest};
use crate::name::Name;
use crate::priority::Aging;

/// The most queues whose backlog a node measures. Each queue costs two time series, and a call in
/// every pass.
const MAX_MEASURED_QUEUES: usize = 50;

/// The settings of a node, with the reasons for their defaults. [`NodeBuilder`](crate::NodeBuilder)
/// sets them, and [`Config::problems`] checks them.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How many bodies the default pool runs at once. The default is 32, because jobs mostly wait
    /// for I/O.
    pub(crate) concurrency: usize,
    /// How many bodies the pool of the system queue runs at once. The default is 2, so that one
    /// body that hangs does not block the queue.
    pub(crate) system_concurrency: usize,
    /// Whether the node runs jobs that require no capability. The default is yes, because most jobs
    /// require none.
    pub(crate) untagged: bool,
    /// The most prefetched claims, which are held in addition to the running ones. Claims are
    /// prefetched while jobs are so short that a round trip to the store takes longer than the
    /// claimed work.
    pub(crate) prefetch: usize,
    /// How long a prefetched claim may wait for a slot before it is handed back. The default is 5
    /// s.
    pub(crate) prefetch_ttl: Duration,
    /// Whether payloads are read when a body is about to begin instead of with the claim.
    pub(crate) lazy_payloads: bool,
    pub(crate) aging: Aging,
    /// The first delay after a poll that found fewer jobs than it asked for. The default is 100 ms.
    pub(crate) poll_min: Duration,
    /// The longest delay between two polls of an idle node, and between two looks of the leader for
    /// due jobs. A lost wakeup costs up to two such delays. The default is 1 s.
    pub(crate) poll_max: Duration,
    /// The interval between heartbeats. The default is 5 s, a third of `dead_after`.
    pub(crate) heartbeat_interval: Duration,
    /// The longest interval between heartbeats of an idle node. The default is 30 s.
    pub(crate) heartbeat_max: Duration,
    /// How long a node must be silent to count as dead. The default is 15 s.
    pub(crate) dead_after: Duration,
    /// How often the node looks for claims whose node is gone. The default is 5 s.
    pub(crate) reclaim_interval: Duration,
    /// How long a claim may wait for its body to begin. The default is 5 min.
    pub(crate) start_timeout: Duration,
    /// How many lost claims a job survives. The default is 3: the fourth loss makes the job a dead
    /// letter.
    pub(crate) max_crashes: u32,
    /// How long a drain waits for running bodies. The default is 30 s.
    pub(crate) drain_grace: Duration,
    /// The retention of finished jobs. By default successes are deleted after a day, and all others
    /// after 90 days.
    pub(crate) retention: Retention,
    /// The queues whose backlog the leader measures. None by default, because each costs two time
    /// series and a call.
    pub(crate) measured_queues: Vec<Name>,
    /// How often the node looks for old jobs. The default is 1 min.
    pub(crate) maintenance_interval: Duration,
    /// The longest sleep of the loop that fires recurring definitions. Without wakeups, a
    /// definition that another process has stored takes effect up to this much later. The default
    /// is 5 s.
    pub(crate) recurring_interval: Duration,
    /// Whether to delete definitions that a program declared earlier and that this program does not
    /// declare. The default is no, because another program may still declare them.
    pub(crate) retire_recurring: bool,
    /// How long one call of the store may take. The default is 10 s.
    pub(crate) store_deadline: Duration,
    pub(crate) leadership: LeaderTimings,
    /// The interval at whose multiples an idle node calls the database. `None` if its loops are
    /// independent, so that their calls are spread.
    pub(crate) idle_interval: Option<Duration>,
    /// How long the node waits for others to take over from a leader that vanished. The default is
    /// zero.
    pub(crate) takeover_delay: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            concurrency: 32,
            system_concurrency: 2,
            untagged: true,
            prefetch: Self::prefetch_for(32),
            prefetch_ttl: seconds(5),
            lazy_payloads: false,
            aging: Aging::default(),
            poll_min: Duration::from_millis(100),
            poll_max: seconds(1),
            heartbeat_interval: seconds(5),
            heartbeat_max: seconds(30),
            dead_after: NodeRecord::DEAD_AFTER,
            reclaim_interval: seconds(5),
            start_timeout: seconds(300),
            max_crashes: 3,
            drain_grace: seconds(30),
            retention: Retention::default(),
            measured_queues: Vec::new(),
            maintenance_interval: seconds(60),
            recurring_interval: seconds(5),
            retire_recurring: false,
            store_deadline: seconds(10),
            leadership: LeaderTimings::default(),
            idle_interval: None,
            takeover_delay: Duration::ZERO,
        }
    }
}

impl Config {
    /// Returns the prefetch of a pool for which none is configured: 30 claims for each slot, at
    /// most 960.
    pub(crate) const fn prefetch_for(concurrency: usize) -> usize {
        if concurrency < 32 {
            concurrency * 30
        } else {
            960
        }
    }

    /// The longest heartbeat interval that may be configured.
    const LONGEST_HEARTBEAT: Duration = Duration::from_secs(3_600);

    /// The shortest idle interval that may be configured.
    const SHORTEST_IDLE: Duration = Duration::from_secs(60);

    /// Returns how long a heartbeat may take. A heartbeat that hangs must leave time for another
    /// heartbeat before the node counts as dead.
    pub(crate) fn heartbeat_deadline(&self) -> Duration {
        self.heartbeat_interval.min(self.store_deadline)
    }

    /// Returns the number of lost claims from which a job runs only while no other such job runs on
    /// the node, so that a job that kills its process uses up only its own crash budget.
    pub(crate) fn isolate_from(&self) -> u32 {
        self.max_crashes.saturating_sub(1).max(1)
    }

    pub(crate) fn reclaim_request(&self) -> ReclaimRequest {
        ReclaimRequest::new()
            .dead_after(self.dead_after)
            .start_timeout(self.start_timeout)
            .max_crashes(self.max_crashes)
    }

    /// Returns every setting that cannot work, each with the values that conflict.
    pub(crate) fn problems(&self) -> Vec<SettingProblem> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, settings: &[&'static str], text: String| {
            if wrong {
                problems.push(SettingProblem::new(settings, text));
            }
        };
        refuse(
            self.concurrency == 0,
            &["concurrency"],
            "concurrency is 0".to_owned(),
        );
        let measured = self.measured_queues.len();
        refuse(
            measured > MAX_MEASURED_QUEUES,
            &["measured_queues"],
            format!(
                "measured_queues names {measured} queues; at most {MAX_MEASURED_QUEUES} can be measured"
            ),
        );
        for (name, value) in [
            ("prefetch_ttl", self.prefetch_ttl),
            ("poll_interval.min", self.poll_min),
            ("heartbeat_interval", self.heartbeat_interval),
            ("dead_after", self.dead_after),
            ("reclaim_interval", self.reclaim_interval),
            ("start_timeout", self.start_timeout),
            ("maintenance_interval", self.maintenance_interval),
            ("recurring_interval", self.recurring_interval),
            ("store_deadline", self.store_deadline),
        ] {
            refuse(value.is_zero(), &[name], format!("{name} is zero"));
            refuse(
                value > LONGEST,
                &[name],
                format!("{name} {value:?} is longer than ten years"),
            );
        }
        for (name, value) in [
            ("poll_interval.max", self.poll_max),
            ("drain_grace", self.drain_grace),
            ("takeover_delay", self.takeover_delay),
        ] {
            refuse(
                value > LONGEST,
                &[name],
                format!("{name} {value:?} is longer than ten years"),
            );
        }
        refuse(
            self.poll_min > self.poll_max,
            &["poll_interval.min", "poll_interval.max"],
            format!(
                "poll_interval.min {:?} is longer than poll_interval.max {:?}",
                self.poll_min, self.poll_max
            ),
        );
        let idle = Self::SHORTEST_IDLE..=Self::LONGEST_HEARTBEAT;
        let refused = self.idle_interval.filter(|given| !idle.contains(given));
        if let Some(given) = refused {
            refuse(
                true,
                &["idle_interval"],
                format!(
                    "idle_interval {given:?} is not between {:?} and {:?}",
                    idle.start(),
                    idle.end()
                ),
            );
        }
        refuse(
            self.heartbeat_max > Self::LONGEST_HEARTBEAT && refused.is_none(),
            &["heartbeat_max"],
            format!(
                "heartbeat_max {:?} is longer than {:?}",
                self.heartbeat_max,
                Self::LONGEST_HEARTBEAT
            ),
        );
        refuse(
            self.heartbeat_interval > self.heartbeat_max,
            &["heartbeat_interval", "heartbeat_max"],
            format!(
                "heartbeat_interval {:?} is longer than heartbeat_max {:?}",
                self.heartbeat_interval, self.heartbeat_max
            ),
        );
        refuse(
            self.dead_after < self.heartbeat_interval.saturating_mul(3),
            &["dead_after", "heartbeat_interval"],
            format!(
                "dead_after {:?} is shorter than three heartbeat intervals of {:?}",
                self.dead_after, self.heartbeat_interval
            ),
        );
        refuse(
            self.start_timeout < self.prefetch_ttl.saturating_mul(2),
            &["start_timeout", "prefetch_ttl"],
            format!(
                "start_timeout {:?} is shorter than twice prefetch_ttl {:?}",
                self.start_timeout, self.prefetch_ttl
            ),
        );
        problems.extend(self.retention.problems());
        problems.extend(self.leadership.refused());
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_work() {
        assert_eq!(Config::default().problems(), []);
    }

    #[test]
    fn every_clash_is_named() {
        let config = Config {
            concurrency: 0,
            poll_min: Duration::from_secs(9),
            heartbeat_interval: Duration::from_secs(6),
            store_deadline: Duration::ZERO,
            ..Config::default()
        };
        let problems = config.problems();
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let problems = problems.join("\n");
        for part in ["concurrency is 0", "9s", "dead_after 15s", "store_deadline"] {
            assert!(problems.contains(part), "{part} not in {problems}");
        }
        assert_eq!(config.problems().len(), 4);
    }
}
