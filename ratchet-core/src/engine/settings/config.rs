use std::time::Duration;

use super::retention::{LONGEST, Retention};
use crate::cluster::LeaderTimings;
use crate::error::SettingProblem;
use crate::model::{NodeRecord, ReclaimRequest};
use crate::name::Name;
use crate::priority::Aging;

/// Maximum number of queues whose backlog a node measures. Each queue adds two time series to the
/// metrics, and one store call to every measurement.
const MAX_MEASURED_QUEUES: usize = 50;

/// Settings of a node, with the reasons for their default values.
/// [`NodeBuilder`](crate::NodeBuilder) sets them, and [`Config::problems`] checks them.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Maximum number of job bodies that the default pool runs at once. The default is 32, because
    /// jobs mostly wait for I/O.
    pub(crate) concurrency: usize,
    /// Maximum number of job bodies that the pool of the system queue runs at once. The default is
    /// 2, so that one body that hangs does not block the queue.
    pub(crate) system_concurrency: usize,
    /// Whether the node runs jobs that require no capability. The default is `true`, because most
    /// jobs require none.
    pub(crate) untagged: bool,
    /// Maximum number of prefetched claims, which the node holds in addition to the running jobs.
    /// The node prefetches claims while jobs are very short, so that a round trip to the store
    /// takes longer than the claimed jobs run.
    pub(crate) prefetch: usize,
    /// Maximum time that a prefetched claim waits for a slot. After this time, the node hands the
    /// claim back. The default is 5 s.
    pub(crate) prefetch_ttl: Duration,
    /// Whether the node reads a job's payload shortly before the body begins. If `false`, the claim
    /// call returns the payload.
    pub(crate) lazy_payloads: bool,
    pub(crate) aging: Aging,
    /// Delay after the first poll that found fewer jobs than requested. The delay grows with
    /// further such polls. The default is 100 ms.
    pub(crate) poll_min: Duration,
    /// Maximum delay between two polls of an idle node. The leader also checks for due jobs at this
    /// interval. A lost wakeup delays a job by up to twice this time. The default is 1 s.
    pub(crate) poll_max: Duration,
    /// Time between two heartbeats of a node that is not idle. The default is 5 s, a third of
    /// `dead_after`.
    pub(crate) heartbeat_interval: Duration,
    /// Maximum time between two heartbeats of an idle node. The default is 30 s.
    pub(crate) heartbeat_max: Duration,
    /// Time without heartbeats after which a node counts as dead. The default is 15 s.
    pub(crate) dead_after: Duration,
    /// Time between two searches for lost claims, such as those of dead nodes. The default is 5 s.
    pub(crate) reclaim_interval: Duration,
    /// Maximum time from a claim to the start of the job body. The default is 5 min.
    pub(crate) start_timeout: Duration,
    /// Number of lost claims that a job survives. The next loss makes the job a dead letter. The
    /// default is 3.
    pub(crate) max_crashes: u32,
    /// Maximum time that a draining node waits for running job bodies. The default is 30 s.
    pub(crate) drain_grace: Duration,
    /// Retention of jobs that have ended. By default, jobs that succeeded are deleted after a day,
    /// and all others after 90 days.
    pub(crate) retention: Retention,
    /// Queues whose backlog the leader measures. By default there are none, because each queue adds
    /// two time series and a store call.
    pub(crate) measured_queues: Vec<Name>,
    /// Time between two searches for old jobs to delete or archive. The default is 1 min.
    pub(crate) maintenance_interval: Duration,
    /// Maximum sleep of the loop that fires recurring definitions. If a wakeup is lost, a
    /// definition that another process has stored takes effect up to this much later. The default
    /// is 5 s.
    pub(crate) recurring_interval: Duration,
    /// Whether the node deletes definitions that a program declared earlier and that its own
    /// program does not declare. The default is `false`, because another program may still declare
    /// them.
    pub(crate) retire_recurring: bool,
    /// Maximum duration of one store call. The default is 10 s.
    pub(crate) store_deadline: Duration,
    pub(crate) leadership: LeaderTimings,
    /// Interval of the database calls of an idle node. All loops of the node then call the database
    /// at multiples of this interval. If `None`, each loop has its own interval, which spreads the
    /// calls.
    pub(crate) idle_interval: Option<Duration>,
    /// Extra time that this node waits before it takes over from a leader that vanished. Other
    /// nodes can take over in this time. The default is zero.
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
    /// Returns the maximum number of prefetched claims of a pool for which no number is configured.
    /// It is 30 per slot, and at most 960.
    pub(crate) const fn prefetch_for(concurrency: usize) -> usize {
        if concurrency < 32 {
            concurrency * 30
        } else {
            960
        }
    }

    /// Largest heartbeat interval that may be configured.
    const LONGEST_HEARTBEAT: Duration = Duration::from_secs(3_600);

    /// Smallest idle interval that may be configured.
    const SHORTEST_IDLE: Duration = Duration::from_secs(60);

    /// Returns the maximum duration of a heartbeat call. It is short, so that after a call that
    /// hangs, the node can send another heartbeat before it counts as dead.
    pub(crate) fn heartbeat_deadline(&self) -> Duration {
        self.heartbeat_interval.min(self.store_deadline)
    }

    /// Returns the number of lost claims at which a job is isolated: a node runs at most one such
    /// job at a time. If the job then kills the process, no other such job loses its claim.
    pub(crate) fn isolate_from(&self) -> u32 {
        self.max_crashes.saturating_sub(1).max(1)
    }

    pub(crate) fn reclaim_request(&self) -> ReclaimRequest {
        ReclaimRequest::new()
            .dead_after(self.dead_after)
            .start_timeout(self.start_timeout)
            .max_crashes(self.max_crashes)
    }

    /// Returns the settings that are invalid or conflict with each other. Each problem contains the
    /// values.
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
                "dead_after {:?} is shorter than three times heartbeat_interval {:?}",
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
            assert!(
                problems.contains(part),
                "expected a problem that contains `{part}`, found: \
                 {problems}"
            );
        }
        assert_eq!(config.problems().len(), 4);
    }
}
