use std::time::Duration;

use crate::error::SettingProblem;

/// The settings as problems name them.
const HEARTBEAT: &str = "leader_timings.heartbeat";
const RENEW: &str = "leader_timings.renew_timeout";
const FENCE: &str = "leader_timings.fence_timeout";
const TEARDOWN: &str = "leader_timings.teardown";
const TTL: &str = "leader_timings.ttl";

/// The timings of leadership, with the reasons for their defaults.
///
/// Two inequalities must hold, or a node refuses to be built:
///
/// - `heartbeat + renew_timeout < fence_timeout`: one renewal may fail without a demotion.
/// - `fence_timeout + watchdog tick + teardown ≤ ttl`: a leader that cannot renew has stopped by
///   itself before its lock can expire. It holds because trust is counted from *before* the renewal
///   was sent, and the lock's time from when the database got it. A store that is told to free the
///   locks of holders whose connection is gone gives that up; see [`LockStore`]. So does a step
///   forward of the database's clock: the lock expires early. Candidates that saw the lock held wait for
///   `ttl` by their own clocks, so all nodes should have the same timings. A candidate that starts after the
///   step does not know of the leader, and two can lead until the old leader's next renewal is answered, one
///   `heartbeat` later, or its `fence_timeout` ends. Guarded writes stay exclusive.
///
/// [`LockStore`]: crate::store::LockStore
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderTimings {
    /// How often a leader renews, and how often others look whether they can lead. 3 s.
    pub heartbeat: Duration,
    /// How long one renewal may take. 2 s.
    pub renew_timeout: Duration,
    /// How long after a renewal was sent the leader still takes itself for one. 8 s.
    pub fence_timeout: Duration,
    /// How long what rides on leadership may take to stop. 2 s.
    pub teardown: Duration,
    /// How long the lock lasts without renewal: the longest time without a leader after a crash, but
    /// for one heartbeat of another node. 12 s.
    pub ttl: Duration,
}

impl Default for LeaderTimings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            heartbeat: seconds(3),
            renew_timeout: seconds(2),
            fence_timeout: seconds(8),
            teardown: seconds(2),
            ttl: seconds(12),
        }
    }
}

impl LeaderTimings {
    /// Timings in the proportions of the defaults for a lock that lasts this long: a quarter
    /// between heartbeats, a sixth for a renewal and for stopping, two thirds of trust.
    #[must_use]
    pub fn of_ttl(ttl: Duration) -> Self {
        Self {
            heartbeat: ttl / 4,
            renew_timeout: ttl / 6,
            fence_timeout: ttl * 2 / 3,
            teardown: ttl / 6,
            ttl,
        }
    }

    /// How exact the watchdog is: a tenth of the trust, at most 1 s.
    #[must_use]
    pub fn tick(&self) -> Duration {
        (self.fence_timeout / 10).min(Duration::from_secs(1))
    }

    /// Everything that cannot work, each with the values that clash.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let refused = self.refused();
        refused.iter().map(SettingProblem::to_string).collect()
    }

    /// The same, with the settings.
    pub(crate) fn refused(&self) -> Vec<SettingProblem> {
        let mut problems = Vec::new();
        let mut refuse = |wrong: bool, settings: &[&'static str], text: String| {
            if wrong {
                let text = format!("leadership: {text}");
                problems.push(SettingProblem::new(settings, text));
            }
        };
        for (setting, name, value) in [
            (HEARTBEAT, "heartbeat", self.heartbeat),
            (RENEW, "renew_timeout", self.renew_timeout),
            (FENCE, "fence_timeout", self.fence_timeout),
            (TTL, "ttl", self.ttl),
        ] {
            refuse(value.is_zero(), &[setting], format!("{name} is zero"));
        }
        refuse(
            self.ttl > Duration::from_secs(86_400),
            &[TTL],
            format!("ttl {:?} is longer than a day", self.ttl),
        );
        refuse(
            self.heartbeat.saturating_add(self.renew_timeout) >= self.fence_timeout,
            &[HEARTBEAT, RENEW, FENCE],
            format!(
                "heartbeat {:?} + renew_timeout {:?} is not shorter than fence_timeout {:?}",
                self.heartbeat, self.renew_timeout, self.fence_timeout
            ),
        );
        let stopped = self
            .fence_timeout
            .saturating_add(self.tick())
            .saturating_add(self.teardown);
        refuse(
            stopped > self.ttl,
            &[FENCE, TEARDOWN, TTL],
            format!(
                "fence_timeout {:?} + watchdog tick {:?} + teardown {:?} is longer than ttl {:?}",
                self.fence_timeout,
                self.tick(),
                self.teardown,
                self.ttl
            ),
        );
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_defaults_and_their_proportions_work() {
        assert_eq!(LeaderTimings::default().problems(), Vec::<String>::new());
        for millis in [60, 1_000, 30_000] {
            let timings = LeaderTimings::of_ttl(Duration::from_millis(millis));
            assert_eq!(timings.problems(), Vec::<String>::new());
        }
    }

    #[test]
    fn every_clash_is_named_with_its_values() {
        let timings = LeaderTimings::default();
        let table = [
            (
                LeaderTimings {
                    heartbeat: 6 * SECOND,
                    ..timings
                },
                "heartbeat 6s",
            ),
            (
                LeaderTimings {
                    ttl: 9 * SECOND,
                    ..timings
                },
                "ttl 9s",
            ),
            (
                LeaderTimings {
                    teardown: 4 * SECOND,
                    ..timings
                },
                "teardown 4s",
            ),
            (
                LeaderTimings {
                    renew_timeout: Duration::ZERO,
                    ..timings
                },
                "renew_timeout is zero",
            ),
            (
                LeaderTimings {
                    ttl: Duration::MAX,
                    ..timings
                },
                "longer than a day",
            ),
        ];
        for (timings, part) in table {
            let problems = timings.problems();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(part), "{part} not in {problems:?}");
        }
    }
}
