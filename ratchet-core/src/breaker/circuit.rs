//! The state machine of a circuit breaker. It reads no clock and uses no random numbers of its own:
//! both are arguments.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{BreakerState, CircuitBreaker};

/// The number of buckets in the window. An attempt is forgotten with its bucket.
const BUCKETS: u32 = 10;
/// The maximum random extension of the time between two probes, as a fraction of this time.
const JITTER: f64 = 0.1;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    Succeeded,
    Failed,
    /// The attempt shows nothing about the service that the job needs, for example because the job
    /// was cancelled.
    Unknown,
}

/// Identifies an attempt that the circuit admitted. The circuit ignores the end of an attempt if
/// the state of the circuit has changed since it was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CircuitTicket(u64);

/// A change of the state that concerns the pollers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitChange {
    /// The circuit was closed and has opened. The next probe is due after this time. The numbers
    /// are those of the window.
    Opened {
        probe_in: Duration,
        failures: u32,
        attempts: u32,
    },
    /// The probe did not succeed. The next probe is due after this time.
    Reopened { probe_in: Duration },
    /// The probe succeeded.
    Closed,
}

/// The state of one circuit breaker.
#[derive(Debug)]
pub(crate) struct Circuit {
    settings: CircuitBreaker,
    state: CircuitState,
    /// Increased with each change of the state.
    generation: u64,
}

#[derive(Debug)]
enum CircuitState {
    Closed(AttemptWindow),
    Open {
        /// When the next probe is due.
        until: Instant,
        /// The time before the next probe, without its random part.
        wait: Duration,
    },
    /// A probe is running.
    Probing {
        /// The time that was waited before the probe, without its random part.
        wait: Duration,
    },
}

impl Circuit {
    pub(crate) fn new(settings: CircuitBreaker) -> Self {
        Self {
            state: CircuitState::Closed(AttemptWindow::default()),
            settings,
            generation: 0,
        }
    }

    /// Admits an attempt that is about to begin. If the circuit admits none, returns the time after
    /// which the caller may ask again.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<CircuitTicket, Duration> {
        match self.state {
            CircuitState::Closed(_) => {}
            CircuitState::Open { until, .. } if now < until => return Err(until - now),
            CircuitState::Open { wait, .. } => self.become_state(CircuitState::Probing { wait }),
            CircuitState::Probing { wait } => return Err(wait),
        }
        Ok(CircuitTicket(self.generation))
    }

    /// Records the end of an attempt. Returns the change of the state, if there is one. `random` in
    /// `0.0..1.0` determines the random part of the time before the next probe.
    pub(crate) fn record(
        &mut self,
        ticket: CircuitTicket,
        end: AttemptEnd,
        random: f64,
        now: Instant,
    ) -> Option<CircuitChange> {
        if ticket != CircuitTicket(self.generation) {
            return None;
        }
        match (&mut self.state, end) {
            (CircuitState::Closed(window), end) => {
                let failed = match end {
                    AttemptEnd::Succeeded => false,
                    AttemptEnd::Failed => true,
                    AttemptEnd::Unknown => return None,
                };
                window.add(failed, now, self.settings.window);
                let (attempts, failures) = window.totals();
                let rate = u64::from(failures) * 100;
                let limit = u64::from(attempts) * u64::from(self.settings.failure_percent);
                // A success never opens the circuit, even if attempts have just been forgotten.
                if !failed || attempts < self.settings.min_attempts || rate < limit {
                    return None;
                }
                let probe_in = self.open(self.settings.open_for, random, now);
                Some(CircuitChange::Opened {
                    probe_in,
                    failures,
                    attempts,
                })
            }
            (CircuitState::Probing { .. }, AttemptEnd::Succeeded) => {
                self.become_state(CircuitState::Closed(AttemptWindow::default()));
                Some(CircuitChange::Closed)
            }
            (CircuitState::Probing { wait }, end) => {
                let wait = match end {
                    AttemptEnd::Failed => wait.saturating_mul(2).min(self.settings.max_open_for),
                    _ => *wait,
                };
                let probe_in = self.open(wait, random, now);
                Some(CircuitChange::Reopened { probe_in })
            }
            (CircuitState::Open { .. }, _) => None,
        }
    }

    pub(crate) fn state(&self, now: Instant) -> BreakerState {
        match self.state {
            CircuitState::Closed(_) => BreakerState::Closed,
            CircuitState::Open { until, .. } if now < until => BreakerState::Open,
            CircuitState::Open { .. } | CircuitState::Probing { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns the time until the next probe. `None` unless the circuit is open.
    pub(crate) fn probe_in(&self, now: Instant) -> Option<Duration> {
        match self.state {
            CircuitState::Open { until, .. } if now < until => Some(until - now),
            _ => None,
        }
    }

    /// Returns the number of attempts in the window, and how many of them failed. Both are 0 unless
    /// the circuit is closed.
    pub(crate) fn counts(&mut self, now: Instant) -> (u32, u32) {
        match &mut self.state {
            CircuitState::Closed(window) => {
                window.forget(now, self.settings.window);
                window.totals()
            }
            CircuitState::Open { .. } | CircuitState::Probing { .. } => (0, 0),
        }
    }

    fn open(&mut self, wait: Duration, random: f64, now: Instant) -> Duration {
        let probe_in = wait + wait.mul_f64(JITTER * random);
        let until = now + probe_in;
        self.become_state(CircuitState::Open { until, wait });
        probe_in
    }

    fn become_state(&mut self, state: CircuitState) {
        self.state = state;
        self.generation += 1;
    }
}

/// The attempts of the last [`CircuitBreaker::window`], in up to [`BUCKETS`] buckets.
#[derive(Debug, Default)]
struct AttemptWindow(VecDeque<AttemptBucket>);

#[derive(Debug)]
struct AttemptBucket {
    began: Instant,
    attempts: u32,
    failures: u32,
}

impl AttemptWindow {
    fn add(&mut self, failed: bool, now: Instant, window: Duration) {
        self.forget(now, window);
        let span = window / BUCKETS;
        let is_current = |bucket: &&mut AttemptBucket| now < bucket.began + span;
        let bucket = match self.0.back_mut().filter(is_current) {
            Some(bucket) => bucket,
            None => {
                self.0.push_back(AttemptBucket {
                    began: now,
                    attempts: 0,
                    failures: 0,
                });
                match self.0.back_mut() {
                    Some(bucket) => bucket,
                    None => unreachable!("a bucket was just added"),
                }
            }
        };
        bucket.attempts = bucket.attempts.saturating_add(1);
        bucket.failures = bucket.failures.saturating_add(u32::from(failed));
    }

    /// Removes the buckets that began at least a window ago.
    fn forget(&mut self, now: Instant, window: Duration) {
        while self
            .0
            .front()
            .is_some_and(|oldest| oldest.began + window <= now)
        {
            self.0.pop_front();
        }
    }

    /// Returns the number of attempts, and how many of them failed.
    fn totals(&self) -> (u32, u32) {
        self.0.iter().fold((0, 0), |(attempts, failures), bucket| {
            (
                u32::saturating_add(attempts, bucket.attempts),
                u32::saturating_add(failures, bucket.failures),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time;

    const SECOND: Duration = Duration::from_secs(1);

    fn settings() -> CircuitBreaker {
        CircuitBreaker::new()
            .failure_percent(50)
            .min_attempts(4)
            .window(10 * SECOND)
            .open_for(8 * SECOND)
            .max_open_for(20 * SECOND)
    }

    /// A circuit with the time, from which each attempt begins and ends at once.
    struct Timed {
        circuit: Circuit,
        now: Instant,
    }

    impl Timed {
        fn new() -> Self {
            Self {
                circuit: Circuit::new(settings()),
                now: time::monotonic(),
            }
        }

        /// Runs an attempt. Panics if it is not admitted.
        fn run(&mut self, end: AttemptEnd) -> Option<CircuitChange> {
            let ticket = self.circuit.admit(self.now).unwrap();
            self.circuit.record(ticket, end, 0.0, self.now)
        }

        fn state(&self) -> BreakerState {
            self.circuit.state(self.now)
        }
    }

    #[test]
    fn it_opens_at_the_rate_and_not_before_there_are_enough_attempts() {
        let mut timed = Timed::new();
        for end in [
            AttemptEnd::Failed,
            AttemptEnd::Failed,
            AttemptEnd::Unknown,
            AttemptEnd::Failed,
        ] {
            assert_eq!(timed.run(end), None, "expected too few attempts");
        }
        assert_eq!(timed.circuit.counts(timed.now), (3, 3));
        let opened = CircuitChange::Opened {
            probe_in: 8 * SECOND,
            failures: 4,
            attempts: 4,
        };
        assert_eq!(timed.run(AttemptEnd::Failed), Some(opened));
        assert_eq!(timed.state(), BreakerState::Open);
        assert_eq!(timed.circuit.admit(timed.now), Err(8 * SECOND));

        let mut timed = Timed::new();
        for _ in 0..3 {
            assert_eq!(timed.run(AttemptEnd::Succeeded), None);
        }
        for _ in 0..2 {
            assert_eq!(
                timed.run(AttemptEnd::Failed),
                None,
                "expected a rate below 50 %"
            );
        }
        assert!(timed.run(AttemptEnd::Failed).is_some());
    }

    #[test]
    fn attempts_are_forgotten_after_the_window() {
        let mut timed = Timed::new();
        for _ in 0..3 {
            timed.run(AttemptEnd::Failed);
        }
        timed.now += 10 * SECOND - Duration::from_millis(1);
        assert_eq!(timed.circuit.counts(timed.now), (3, 3));
        timed.now += Duration::from_millis(1);
        assert_eq!(timed.circuit.counts(timed.now), (0, 0));
        for _ in 0..3 {
            assert_eq!(timed.run(AttemptEnd::Failed), None);
        }
        assert!(timed.run(AttemptEnd::Failed).is_some());
    }

    #[test]
    fn one_probe_runs_at_a_time_and_closes_the_circuit_if_it_succeeds() {
        let mut timed = Timed::new();
        for _ in 0..4 {
            timed.run(AttemptEnd::Failed);
        }
        timed.now += 8 * SECOND - Duration::from_millis(1);
        assert_eq!(
            timed.circuit.admit(timed.now),
            Err(Duration::from_millis(1))
        );
        timed.now += Duration::from_millis(1);
        assert_eq!(timed.state(), BreakerState::HalfOpen);
        let probe = timed.circuit.admit(timed.now).unwrap();
        assert_eq!(timed.circuit.admit(timed.now), Err(8 * SECOND));
        assert_eq!(timed.state(), BreakerState::HalfOpen);
        let closed = timed
            .circuit
            .record(probe, AttemptEnd::Succeeded, 0.0, timed.now);
        assert_eq!(closed, Some(CircuitChange::Closed));
        assert_eq!(timed.state(), BreakerState::Closed);
        assert_eq!(timed.circuit.counts(timed.now), (0, 0));
        assert_eq!(timed.run(AttemptEnd::Failed), None);
    }

    #[test]
    fn failed_probes_double_the_wait_up_to_the_maximum_and_others_keep_it() {
        let mut timed = Timed::new();
        for _ in 0..4 {
            timed.run(AttemptEnd::Failed);
        }
        let mut wait = 8 * SECOND;
        for (end, next) in [
            (AttemptEnd::Unknown, 8 * SECOND),
            (AttemptEnd::Failed, 16 * SECOND),
            (AttemptEnd::Unknown, 16 * SECOND),
            (AttemptEnd::Failed, 20 * SECOND),
            (AttemptEnd::Failed, 20 * SECOND),
        ] {
            timed.now += wait;
            let reopened = CircuitChange::Reopened { probe_in: next };
            assert_eq!(timed.run(end), Some(reopened));
            wait = next;
        }
        timed.now += wait;
        assert_eq!(
            timed.run(AttemptEnd::Succeeded),
            Some(CircuitChange::Closed)
        );
        for _ in 0..3 {
            timed.run(AttemptEnd::Failed);
        }
        let opened = timed.run(AttemptEnd::Failed);
        assert!(
            matches!(opened, Some(CircuitChange::Opened { probe_in, .. }) if probe_in == 8 * SECOND),
            "expected the first wait again, found {opened:?}"
        );
    }

    #[test]
    fn attempts_that_began_before_a_change_count_no_more() {
        let mut timed = Timed::new();
        let early = timed.circuit.admit(timed.now).unwrap();
        for _ in 0..4 {
            timed.run(AttemptEnd::Failed);
        }
        let late = |timed: &mut Timed, end| timed.circuit.record(early, end, 0.0, timed.now);
        assert_eq!(late(&mut timed, AttemptEnd::Failed), None);
        timed.now += 8 * SECOND;
        let probe = timed.circuit.admit(timed.now).unwrap();
        assert_eq!(late(&mut timed, AttemptEnd::Succeeded), None);
        assert_eq!(late(&mut timed, AttemptEnd::Failed), None);
        let closed = timed
            .circuit
            .record(probe, AttemptEnd::Succeeded, 0.0, timed.now);
        assert_eq!(closed, Some(CircuitChange::Closed));
        assert_eq!(late(&mut timed, AttemptEnd::Failed), None);
        assert_eq!(timed.circuit.counts(timed.now), (0, 0));
    }

    #[test]
    fn the_wait_is_extended_by_up_to_a_tenth() {
        for (random, millis) in [(0.0, 8_000), (0.5, 8_400), (1.0, 8_800)] {
            let mut timed = Timed::new();
            for _ in 0..3 {
                timed.run(AttemptEnd::Failed);
            }
            let ticket = timed.circuit.admit(timed.now).unwrap();
            timed
                .circuit
                .record(ticket, AttemptEnd::Failed, random, timed.now);
            let expected = Duration::from_millis(millis);
            assert_eq!(timed.circuit.probe_in(timed.now), Some(expected));
        }
    }

    /// A step of a random history: let time pass, begin an attempt, or end one of those that run.
    #[derive(Clone, Debug)]
    enum Step {
        Pass(u64),
        Begin,
        Finish(prop::sample::Index, AttemptEnd),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let end = prop_oneof![
            Just(AttemptEnd::Succeeded),
            Just(AttemptEnd::Failed),
            Just(AttemptEnd::Unknown)
        ];
        prop_oneof![
            (0..12_000_u64).prop_map(Step::Pass),
            Just(Step::Begin),
            (any::<prop::sample::Index>(), end).prop_map(|(which, end)| Step::Finish(which, end)),
        ]
    }

    proptest! {
        /// In every history: no attempt is admitted while the circuit is open, at most one probe
        /// runs, the circuit opens only after enough failures within a window, and each time
        /// between two probes is within its bounds.
        #[test]
        fn histories_keep_the_rules(
            steps in prop::collection::vec(any_step(), 0..200),
            random in 0.0..1.0_f64,
        ) {
            let mut timed = Timed::new();
            let mut running: Vec<(CircuitTicket, bool)> = Vec::new();
            // The times of the failures while the circuit was closed.
            let mut failures: Vec<Instant> = Vec::new();
            for step in steps {
                let before = timed.state();
                match step {
                    Step::Pass(millis) => timed.now += Duration::from_millis(millis),
                    Step::Begin => {
                        let probes = running.iter().filter(|(_, probe)| *probe).count();
                        match timed.circuit.admit(timed.now) {
                            Ok(ticket) => {
                                prop_assert_ne!(before, BreakerState::Open);
                                let is_probe = before == BreakerState::HalfOpen;
                                prop_assert!(!is_probe || probes == 0);
                                running.push((ticket, is_probe));
                            }
                            Err(wait) => {
                                prop_assert_ne!(before, BreakerState::Closed);
                                prop_assert!(wait > Duration::ZERO);
                            }
                        }
                    }
                    Step::Finish(which, end) if !running.is_empty() => {
                        let (ticket, is_probe) = running.remove(which.index(running.len()));
                        if before == BreakerState::Closed && end == AttemptEnd::Failed {
                            failures.push(timed.now);
                        }
                        match timed.circuit.record(ticket, end, random, timed.now) {
                            None => prop_assert!(!is_probe),
                            Some(CircuitChange::Closed) => {
                                prop_assert!(is_probe && end == AttemptEnd::Succeeded);
                                failures.clear();
                            }
                            Some(CircuitChange::Opened { probe_in, failures: counted, attempts }) => {
                                prop_assert!(!is_probe && end == AttemptEnd::Failed);
                                prop_assert!(attempts >= 4 && counted * 2 >= attempts);
                                let recent = |at: &&Instant| timed.now < **at + 10 * SECOND;
                                let recent = failures.iter().filter(recent).count();
                                prop_assert!(recent >= counted as usize);
                                prop_assert!(probe_in >= 8 * SECOND && probe_in <= 9 * SECOND);
                            }
                            Some(CircuitChange::Reopened { probe_in }) => {
                                prop_assert!(is_probe && end != AttemptEnd::Succeeded);
                                prop_assert!(probe_in >= 8 * SECOND && probe_in <= 22 * SECOND);
                            }
                        }
                    }
                    Step::Finish(..) => {}
                }
            }
        }
    }
}
