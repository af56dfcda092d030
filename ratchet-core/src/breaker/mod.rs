//! Circuit breakers: stop running the jobs of a kind while most of their attempts fail.
//!
//! The states and their names are those of Michael T. Nygard, *Release It!* (2nd edition, 2018),
//! chapter 5, "Circuit Breaker". The failure rate is measured as in Netflix Hystrix ("How it
//! Works", section "Circuit Breaker"): over a sliding window of 10 buckets, and only if the window
//! has a minimum number of attempts.

mod circuit;

use std::time::Duration;

pub(crate) use circuit::{AttemptEnd, Circuit, CircuitChange, CircuitTicket};

use crate::name::Name;

/// The circuit breaker of a job type. Pass it to
/// [`NodeBuilder::circuit_breaker`](crate::NodeBuilder::circuit_breaker).
///
/// While the breaker is *closed*, jobs run, and it counts how their attempts end. If too many of
/// them fail, it *opens*: the node claims no jobs of the kind, so these jobs stay pending and lose
/// no attempt. After some time the breaker is *half-open*: the node runs one job as a probe. If the
/// probe succeeds, the breaker closes. If it fails, the breaker opens again, for twice as long as
/// before.
///
/// A failed attempt is one whose body returned an error to be retried, panicked, timed out or
/// stalled. Attempts that were snoozed, discarded, cancelled, interrupted or lost count neither as
/// failed nor as succeeded.
///
/// Each node has its own breaker and learns by itself. So in a cluster of k nodes, up to k times
/// [`min_attempts`](Self::min_attempts) attempts fail before all breakers are open, and after that
/// each node runs its own probes.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use ratchet::{Job, JobContext, JobResult, MemoryStore, Ratchet};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # struct Charge;
/// # impl Job for Charge {
/// #     const KIND: &'static str = "charge";
/// #     type Output = ();
/// #     async fn run(self, _: JobContext) -> JobResult<()> { Ok(()) }
/// # }
/// use ratchet::{BreakerState, CircuitBreaker};
///
/// // Opens when at least half of at least 20 attempts in one minute have failed.
/// let breaker = CircuitBreaker::new()
///     .failure_percent(50)
///     .min_attempts(20)
///     .window(Duration::from_secs(60))
///     .open_for(Duration::from_secs(30));
/// let node = Ratchet::builder(Arc::new(MemoryStore::new()))
///     .register::<Charge>()
///     .circuit_breaker::<Charge>(breaker)
///     .build()?;
/// assert_eq!(node.breakers()[0].state, BreakerState::Closed);
/// # Ok::<(), ratchet::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct CircuitBreaker {
    failure_percent: u32,
    min_attempts: u32,
    window: Duration,
    open_for: Duration,
    max_open_for: Duration,
}

impl CircuitBreaker {
    /// The longest window, and the longest time for which a breaker is open.
    const LONGEST: Duration = Duration::from_secs(86_400);

    /// Creates a breaker with the defaults: it opens when at least 50 % of at least 10 attempts in
    /// 60 s have failed. It is open for 30 s at first, and for 5 minutes at most.
    pub const fn new() -> Self {
        Self {
            failure_percent: 50,
            min_attempts: 10,
            window: Duration::from_secs(60),
            open_for: Duration::from_secs(30),
            max_open_for: Duration::from_secs(300),
        }
    }

    /// Sets the share of failed attempts at which the breaker opens, from 1 to 100 percent.
    pub const fn failure_percent(mut self, percent: u32) -> Self {
        self.failure_percent = percent;
        self
    }

    /// Sets the minimum number of attempts in the window, at least 1. With fewer attempts, the
    /// breaker stays closed whatever their failure rate.
    pub const fn min_attempts(mut self, attempts: u32) -> Self {
        self.min_attempts = attempts;
        self
    }

    /// Sets the time over which attempts are counted, from 100 ms to one day. An attempt is
    /// forgotten after 90 % to 100 % of this time.
    pub const fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets the time from the opening of the breaker to its first probe, from 1 ms to one day. It
    /// is extended by a random part of up to 10 %, so that the nodes of a cluster do not all probe
    /// at once.
    pub const fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    /// Sets the longest time between two probes, without the random part. It must be at least
    /// [`open_for`](Self::open_for) and at most one day.
    pub const fn max_open_for(mut self, time: Duration) -> Self {
        self.max_open_for = time;
        self
    }

    /// Checks the settings. Returns what is wrong with the first one that is invalid.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let between = |name: &str, value: Duration, least: Duration| match value {
            value if value < least || value > Self::LONGEST => Err(format!(
                "{name} is {value:?}; it must be {least:?} to {:?}",
                Self::LONGEST
            )),
            _ => Ok(()),
        };
        if !(1..=100).contains(&self.failure_percent) {
            let percent = self.failure_percent;
            return Err(format!("failure_percent is {percent}; it must be 1 to 100"));
        }
        if self.min_attempts == 0 {
            return Err("min_attempts is 0; the minimum is 1".to_owned());
        }
        between("window", self.window, Duration::from_millis(100))?;
        between("open_for", self.open_for, Duration::from_millis(1))?;
        between("max_open_for", self.max_open_for, self.open_for)
    }
}

impl Default for CircuitBreaker {
    fn default() -> Self {
        Self::new()
    }
}

/// The state of a [`CircuitBreaker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// The node runs jobs of the kind.
    Closed,
    /// The node claims no jobs of the kind.
    Open,
    /// The next job of the kind is a probe, or a probe is running.
    HalfOpen,
}

impl BreakerState {
    /// Returns the name of the state: `closed`, `open` or `half_open`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// A circuit breaker of a node, as [`Node::breakers`](crate::Node::breakers) returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerInfo {
    /// The kind.
    pub kind: Name,
    /// The state of the breaker.
    pub state: BreakerState,
    /// The number of attempts that count in the window. 0 unless the breaker is closed.
    pub attempts: u32,
    /// How many of these attempts failed.
    pub failures: u32,
    /// The time until the next probe. `None` unless the breaker is open.
    pub probe_in: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let new = CircuitBreaker::new;
        let (milli, day) = (Duration::from_millis(1), CircuitBreaker::LONGEST);
        assert_eq!(new().validate(), Ok(()));
        let widest = new().window(day).open_for(day).max_open_for(day);
        assert_eq!(widest.validate(), Ok(()));
        for (breaker, setting) in [
            (new().failure_percent(0), "failure_percent is 0;"),
            (new().failure_percent(101), "failure_percent is 101;"),
            (new().min_attempts(0), "min_attempts is 0;"),
            (new().window(99 * milli), "window is 99ms;"),
            (new().window(day + milli), "window is "),
            (new().open_for(Duration::ZERO), "open_for is 0ns;"),
            (new().max_open_for(milli), "max_open_for is 1ms;"),
            (new().max_open_for(day + milli), "max_open_for is "),
        ] {
            let problem = breaker.validate().unwrap_err();
            assert!(problem.starts_with(setting), "{problem}");
        }
    }
}
