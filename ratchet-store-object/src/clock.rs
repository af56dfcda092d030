//! The estimate of the server's time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ratchet_core::memory::ManualClock;
use ratchet_core::{StoreErrorKind, time};
use tokio::time::Instant;

use crate::error::{Failure, Result};

/// How long a measurement of the server's time is used.
const MEASURED_FOR: Duration = Duration::from_secs(15 * 60);
/// How long after a failed measurement the next one begins.
const MEASURED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// By how much the clock of the machine and the monotonic clock may differ until the server's time
/// is measured again. They differ after the machine was suspended, or its clock was set.
const AGREES_TO: i64 = 2_000;
/// By how many milliseconds the clocks of the server and the machine may differ at most. Services
/// refuse requests long before.
const MOST_APART: u64 = 24 * 60 * 60 * 1_000;
/// By how many milliseconds the time of the log may be ahead of the server's at most. The estimates
/// of all processes are nearer.
const MOST_AHEAD: i64 = 5 * 60 * 1_000;
/// Servers give the time of an object to the second, rounded down.
const PRECISION: i64 = 1_000;

/// Reads the clocks of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) monotonic: Instant,
    pub(crate) machine: i64,
}

impl Moment {
    /// Returns how much time has passed from this moment to `later`: the longer one of the
    /// durations that the two clocks show. The monotonic clock stops while the machine is
    /// suspended. `None` if the machine's clock was set back.
    pub(crate) fn until(&self, later: &Self) -> Option<Duration> {
        let machine = u64::try_from(later.machine - self.machine).ok()?;
        let monotonic = later.monotonic.saturating_duration_since(self.monotonic);
        Some(monotonic.max(Duration::from_millis(machine)))
    }
}

/// The clock of a store.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The clock of a test.
    Manual(ManualClock),
    Estimate(Estimate),
}

/// The estimate of the server's time.
#[derive(Debug)]
pub(crate) struct Estimate {
    state: Mutex<State>,
    /// What a test uses instead of the clock of the machine.
    machine: Option<ManualClock>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    measured: Measured,
    /// The server's time is not measured again before this moment.
    not_before: Instant,
    /// The latest time that a command or a read of this process has had.
    latest: i64,
}

/// The bounds of the server's time at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// The server's time was not earlier at `ended`.
    earliest: i64,
    ended: Moment,
    /// The server's time was not later at `began`.
    latest: i64,
    began: Moment,
}

impl Measured {
    /// Concludes the bounds from a put between `began` and `ended`, which the server gave the time
    /// `put_at`. Fails if one of the clocks must be wrong.
    pub(crate) fn new(put_at: i64, began: Moment, ended: Moment) -> Result<Self> {
        if put_at.abs_diff(ended.machine) > MOST_APART {
            return Err(Failure::refusal(
                StoreErrorKind::Misconfigured,
                format!(
                    "the clock of the object storage shows {}, that of this machine shows {}; set \
                     the wrong one",
                    time::from_millis(put_at),
                    time::from_millis(ended.machine)
                ),
            ));
        }
        Ok(Self {
            earliest: put_at,
            ended,
            latest: put_at.saturating_add(PRECISION),
            began,
        })
    }

    /// Returns the time of the machine, limited to what the server's time can be.
    fn at(&self, now: &Moment) -> i64 {
        let latest = self.latest.saturating_add(elapsed(&self.began, now));
        let earliest = self.earliest.saturating_add(elapsed(&self.ended, now));
        now.machine.min(latest).max(earliest)
    }

    fn is_old(&self, now: &Moment) -> bool {
        let monotonic = elapsed(&self.began, now);
        let machine = now.machine - self.began.machine;
        monotonic > time::duration_millis(MEASURED_FOR) || (machine - monotonic).abs() > AGREES_TO
    }
}

/// Returns the milliseconds between two moments, by the monotonic clock.
fn elapsed(from: &Moment, to: &Moment) -> i64 {
    let elapsed = to.monotonic.saturating_duration_since(from.monotonic);
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

impl Clock {
    /// Creates the estimate from a measurement.
    pub(crate) fn estimate(measured: Measured, machine: Option<ManualClock>) -> Self {
        let state = State {
            measured,
            not_before: measured.began.monotonic,
            latest: i64::MIN,
        };
        Self::Estimate(Estimate {
            state: Mutex::new(state),
            machine,
        })
    }

    /// Returns the time for a command or a read after a command with the time `last`, in
    /// milliseconds since 1970.
    ///
    /// It is not earlier than any time that this process has seen: in the log, of its own commands
    /// and of its reads. But a time that is far ahead of the server's must be a mistake, which
    /// would stop the time until then. It is ignored.
    pub(crate) fn after(&self, last: i64) -> i64 {
        match self {
            Self::Manual(clock) => clock.now_millis(),
            Self::Estimate(estimate) => {
                let now = self.moment();
                let mut state = estimate.lock();
                let now = state.measured.at(&now);
                let known = [last, state.latest];
                let known = known
                    .into_iter()
                    .filter(|known| known.saturating_sub(now) <= MOST_AHEAD);
                state.latest = known.fold(now, i64::max);
                state.latest
            }
        }
    }

    pub(crate) fn moment(&self) -> Moment {
        match self {
            Self::Manual(clock) => moment(Some(clock)),
            Self::Estimate(estimate) => moment(estimate.machine.as_ref()),
        }
    }

    /// Returns whether the server's time should be measured again.
    pub(crate) fn is_old(&self) -> bool {
        match self {
            Self::Manual(_) => false,
            Self::Estimate(estimate) => {
                let now = self.moment();
                let state = *estimate.lock();
                now.monotonic >= state.not_before && state.measured.is_old(&now)
            }
        }
    }

    /// Uses the old measurement for a while, because a new one has failed.
    pub(crate) fn postpone(&self) {
        if let Self::Estimate(estimate) = self {
            estimate.lock().not_before = time::monotonic() + MEASURED_AGAIN_AFTER;
        }
    }

    /// Uses a new measurement.
    pub(crate) fn set(&self, measured: Measured) {
        if let Self::Estimate(estimate) = self {
            estimate.lock().measured = measured;
        }
    }

    /// Returns by how many milliseconds the clock of the machine is ahead of the estimate, which is
    /// the nearest time that the server can have.
    pub(crate) fn machine_ahead(&self) -> i64 {
        match self {
            Self::Manual(_) => 0,
            Self::Estimate(estimate) => {
                let now = self.moment();
                now.machine - estimate.measured().at(&now)
            }
        }
    }
}

impl Estimate {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measured(&self) -> Measured {
        self.lock().measured
    }
}

/// Reads the clocks, with a clock of a test instead of the clock of the machine if there is one.
pub(crate) fn moment(machine: Option<&ManualClock>) -> Moment {
    Moment {
        monotonic: time::monotonic(),
        machine: machine.map_or_else(
            || time::to_millis(time::wall_clock()),
            ManualClock::now_millis,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(start: Instant, elapsed: Duration, machine: i64) -> Moment {
        Moment {
            monotonic: start + elapsed,
            machine,
        }
    }

    #[test]
    fn the_machines_clock_counts_within_what_the_server_shows() {
        let start = time::monotonic();
        let (began, ended) = (
            after(start, Duration::ZERO, 0),
            after(start, SECOND / 10, 0),
        );
        let measured = Measured::new(50_000, began, ended).unwrap();
        let at = |machine| measured.at(&after(start, 10 * SECOND, machine));
        // The put was at 50.000 to 50.999, between 0.0 and 0.1 seconds.
        assert_eq!(at(60_500), 60_500);
        assert_eq!(at(0), 59_900);
        assert_eq!(at(i64::MAX), 61_000);
    }

    #[test]
    fn a_measurement_ends_with_time_and_with_a_machine_that_slept() {
        let start = time::monotonic();
        let began = after(start, Duration::ZERO, 7_000);
        let measured = Measured::new(0, began, began).unwrap();
        assert!(!measured.is_old(&after(start, SECOND, 8_500)));
        assert!(measured.is_old(&after(start, SECOND, 7_000 + 3_600_000)));
        assert!(measured.is_old(&after(start, SECOND, 7_000 - 3_600_000)));
        assert!(measured.is_old(&after(start, MEASURED_FOR + SECOND, 7_000 + 901_000)));
    }

    #[test]
    fn a_time_that_must_be_wrong_is_not_used() {
        let start = time::monotonic();
        let began = after(start, Duration::ZERO, 7_000);
        let year = 365 * 24 * 3_600_000;
        assert!(Measured::new(year, began, began).is_err());
        assert!(Measured::new(-year, began, began).is_err());
        let machine = ManualClock::new(time::from_millis(50_500));
        let moment = moment(Some(&machine));
        let measured = Measured::new(50_000, moment, moment).unwrap();
        let clock = Clock::estimate(measured, Some(machine));
        assert_eq!(clock.after(0), 50_500);
        assert_eq!(clock.after(60_000), 60_000);
        assert_eq!(clock.after(0), 60_000);
        assert_eq!(clock.after(year), 60_000);
    }

    #[test]
    fn time_between_moments_is_that_of_the_faster_clock() {
        let start = time::monotonic();
        let began = after(start, Duration::ZERO, 7_000);
        assert_eq!(began.until(&after(start, SECOND, 7_500)), Some(SECOND));
        assert_eq!(began.until(&after(start, SECOND, 9_000)), Some(2 * SECOND));
        assert_eq!(began.until(&after(start, SECOND, 6_999)), None);
    }
}
