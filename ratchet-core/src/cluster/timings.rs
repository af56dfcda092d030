use std::time::Duration;

use crate::error::SettingProblem;

/// The names of the settings in error messages.
const HEARTBEAT: &str = "leader_timings.heartbeat";
const RENEW: &str = "leader_timings.renew_timeout";
const FENCE: &str = "leader_timings.fence_timeout";
const TEARDOWN: &str = "leader_timings.teardown";
const TTL: &str = "leader_timings.ttl";

/// The timings of leadership.
///
/// Two inequalities must hold, otherwise building a node fails:
///
/// - `heartbeat + renew_timeout < fence_timeout`, so that one renewal may fail without a demotion.
/// - `fence_timeout + watchdog tick + teardown ≤ ttl`, so that a leader that cannot renew has
///   stopped on its own before its lock can expire. This holds because the leader counts
///   `fence_timeout` from *before* it sends the renewal, and the database counts `ttl` from when it
///   receives the renewal.
///
/// Two things can break the second guarantee. One is a store that is configured to free the locks
/// of holders whose connection is gone; see [`LockStore`]. The other is a forward step of the
/// database's clock, which makes the lock expire early. Candidates that saw the lock held wait for
/// `ttl` by their own clocks, so all nodes should have the same timings. But a candidate that
/// starts after the step has never seen the lock held. Then two nodes can lead until the old
/// leader's next renewal is answered, one `heartbeat` later, or until its `fence_timeout` ends.
/// Guarded writes stay exclusive.
///
/// [`LockStore`]: crate::store::LockStore
///
/// ```
/// use std::time::Duration;
/// use ratchet::LeaderTimings;
///
/// let timings = LeaderTimings::of_ttl(Duration::from_secs(24));
/// assert_eq!(timings.heartbeat, Duration::from_secs(6));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderTimings {
    /// How often a leader renews its lock, and how often the other candidates try to acquire it.
    /// The default is 3 s.
    pub heartbeat: Duration,
    /// Timeout of one renewal. The default is 2 s.
    pub renew_timeout: Duration,
    /// How long after sending a renewal the leader still trusts its leadership. The default is 8 s.
    pub fence_timeout: Duration,
    /// How long work that depends on leadership may take to stop. The default is 2 s.
    pub teardown: Duration,
    /// TTL of the lock. After a crash, the role has no leader for at most this long plus one
    /// heartbeat of another node. The default is 12 s.
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
    /// Creates timings for a lock with this TTL, in the proportions of the defaults: heartbeat 1/4,
    /// `renew_timeout` and `teardown` 1/6, `fence_timeout` 2/3.
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

    /// Returns timings with this interval between renewals, for
    /// [`idle_interval`](crate::NodeBuilder::idle_interval). A renewal that fails can be repeated
    /// for half a minute.
    pub(crate) fn of_heartbeat(heartbeat: Duration) -> Self {
        let half_minute = Duration::from_secs(30);
        Self {
            heartbeat,
            fence_timeout: heartbeat.saturating_add(half_minute),
            ttl: heartbeat.saturating_add(half_minute * 2),
            ..Self::default()
        }
    }

    /// Returns the watchdog's resolution: a tenth of `fence_timeout`, at most 1 s.
    #[must_use]
    pub fn tick(&self) -> Duration {
        (self.fence_timeout / 10).min(Duration::from_secs(1))
    }

    /// Returns every violated rule, each with the values that conflict.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let refused = self.refused();
        refused.iter().map(SettingProblem::to_string).collect()
    }

    /// Returns every violated rule with the names of its settings.
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
            format!("ttl is {:?}, which is longer than a day", self.ttl),
        );
        refuse(
            self.heartbeat.saturating_add(self.renew_timeout) >= self.fence_timeout,
            &[HEARTBEAT, RENEW, FENCE],
            format!(
                "heartbeat {:?} + renew_timeout {:?} must be shorter than fence_timeout {:?}",
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
                "fence_timeout {:?} + watchdog tick {:?} + teardown {:?} must not be longer than \
                 ttl {:?}",
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
            assert!(
                problems[0].contains(part),
                "expected one problem that contains `{part}`, \
                 found {problems:?}"
            );
        }
    }
}
