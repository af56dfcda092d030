//! Detects steps of the database's clock.
//!
//! Each heartbeat reply contains the database's time, which the store reads after the heartbeat was
//! sent and before the reply is received. So the time between two readings has bounds that need no
//! estimate of the network:
//!
//! - It is at least the time from the receipt of the first reply to the sending of the second
//!   heartbeat.
//! - It is at most the time from the sending of the first heartbeat to the receipt of the second
//!   reply.
//!
//! If the database's clock moved by less or by more than these bounds allow, it stepped.
//!
//! A process that was suspended also sees a forward step, because Linux stops the monotonic clock
//! during suspend. The process cannot know how long the other nodes were silent, so it treats the
//! suspension like a step.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::ClockTrust;
use crate::time::{Timestamp, duration_millis, from_millis, millis_between, to_millis};

/// Difference, in milliseconds, that never counts as a step of the database's clock. It covers
/// clocks that advance in ticks of up to 16 ms, and a change to another server of a replica set.
const TOLERANCE: i64 = 100;
/// Maximum drift that does not count as a step of the database's clock, as a divisor of the elapsed
/// time. With 10, the maximum is a tenth of the elapsed time. Time services correct a clock more
/// slowly than this. A drift of a tenth is also too small to make a live node count as dead.
const DRIFT: i64 = 10;
/// Maximum drift, in milliseconds, that does not count as a step, however long the time between two
/// heartbeats. A faster correction counts as a step, which only delays the recovery of dead nodes.
const LARGEST_DRIFT: i64 = 6_000;

/// Reading of the database's clock by one heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) sent: Instant,
    pub(super) received: Instant,
    pub(super) database: Timestamp,
}

/// Step of the database's clock. The given size is an upper bound. The actual size may be smaller,
/// at most by the round trips of both readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockStep {
    /// The clock stepped forward, by at most this duration.
    Forward(Duration),
    /// The clock stepped back, by at most this duration.
    Back(Duration),
}

/// Detects steps of the database's clock. Keeps the last reading and the steps found so far.
#[derive(Debug)]
pub(super) struct ClockWatch {
    last: Option<Reading>,
    trust: ClockTrust,
}

impl ClockWatch {
    pub(super) const fn new() -> Self {
        Self {
            last: None,
            trust: ClockTrust::FULL,
        }
    }

    /// Records a reading. Returns the step of the clock since the previous reading, or `None` if
    /// the clock did not step.
    pub(super) fn note(&mut self, reading: Reading) -> Option<ClockStep> {
        let last = self.last.replace(reading)?;
        let least = duration_millis(reading.sent.saturating_duration_since(last.received));
        let most = duration_millis(reading.received.saturating_duration_since(last.sent));
        let (before, now) = (to_millis(last.database), to_millis(reading.database));
        let moved = now.saturating_sub(before);
        if moved > with_drift(most) {
            // Uses the upper bound of the step, because ages are then judged too short rather than
            // too long. A short age only delays a recovery, but a long age makes a live node lose
            // its claims.
            let by = millis_between(least, moved);
            let at = from_millis(before.saturating_add(with_drift(most)));
            self.trust = self.trust.clone().stepped(at, by);
            return Some(ClockStep::Forward(by));
        }
        if moved < least - drift(least) - TOLERANCE {
            let surely = millis_between(moved, least);
            self.trust = self.trust.clone().stepped_back(surely);
            return Some(ClockStep::Back(millis_between(moved, most)));
        }
        None
    }

    /// Returns the database's time in the last reading.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.last.map(|last| last.database)
    }

    /// Returns the steps of the database's clock so far, and the latest time that the clock can
    /// show by `deadline` without another step. A store call that ends by `deadline` uses them to
    /// compute ages.
    pub(super) fn trust(&self, deadline: Instant) -> ClockTrust {
        let Some(last) = self.last else {
            return self.trust.clone();
        };
        let most = duration_millis(deadline.saturating_duration_since(last.sent));
        let latest = to_millis(last.database).saturating_add(with_drift(most));
        self.trust.clone().until(from_millis(latest))
    }
}

/// Returns the maximum time by which a clock without a step can advance in the elapsed time. The
/// argument and the result are in milliseconds.
fn with_drift(elapsed: i64) -> i64 {
    elapsed.saturating_add(drift(elapsed) + TOLERANCE)
}

/// Returns the maximum drift of a clock without a step in the elapsed time, in milliseconds.
fn drift(elapsed: i64) -> i64 {
    (elapsed / DRIFT).min(LARGEST_DRIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Heartbeat, NodeRecord, NodeStatus, NodeSweep};
    use crate::{Name, NodeId, time};

    const BEGIN: i64 = 1_790_000_000_000;

    /// Simulated heartbeats of a node. All times are in milliseconds.
    struct Beats {
        origin: Instant,
        watch: ClockWatch,
    }

    impl Beats {
        fn new() -> Self {
            Self {
                origin: time::monotonic(),
                watch: ClockWatch::new(),
            }
        }

        fn at(&self, millis: u64) -> Instant {
            self.origin + Duration::from_millis(millis)
        }

        /// Records a heartbeat that is sent at `sent`, takes `took`, and reads `database` as the
        /// database's time.
        fn beat(&mut self, sent: u64, took: u64, database: i64) -> Option<ClockStep> {
            let (sent, received) = (self.at(sent), self.at(sent + took));
            self.watch.note(Reading {
                sent,
                received,
                database: from_millis(BEGIN + database),
            })
        }
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_clock_never_steps_whatever_the_round_trips() {
        let mut beats = Beats::new();
        // The store reads the clock at any time between sending and receipt.
        for (sent, took, read) in [
            (0, 10, 0),
            (5_000, 4_900, 9_900),
            (10_000, 4_900, 10_000),
            (15_000, 0, 15_000),
            (45_000, 9_000, 54_000),
            (55_000, 9_000, 55_000),
        ] {
            assert_eq!(beats.beat(sent, took, read), None, "sent at {sent}");
        }
    }

    #[test]
    fn a_step_forward_is_seen_with_the_most_it_can_be() {
        let mut beats = Beats::new();
        assert_eq!(beats.beat(0, 20, 10), None);
        let step = beats.beat(5_000, 20, 3_605_010);
        assert_eq!(step, Some(ClockStep::Forward(millis(3_600_020))));
        assert_eq!(beats.beat(10_000, 20, 3_610_010), None, "one step, once");
    }

    #[test]
    fn a_step_back_is_seen() {
        let mut beats = Beats::new();
        beats.beat(0, 20, 10);
        let step = beats.beat(5_000, 20, -3_594_990);
        assert_eq!(step, Some(ClockStep::Back(millis(3_600_020))));
        assert_eq!(beats.beat(10_000, 20, -3_589_990), None);
    }

    #[test]
    fn a_drift_of_a_tenth_is_no_step() {
        for speed in [9, 11] {
            let mut beats = Beats::new();
            for round in 0..1_000 {
                let at = round * 5_000;
                let database = i64::try_from(at).unwrap() * speed / 10;
                assert_eq!(beats.beat(at, 10, database), None, "round {round}");
            }
        }
    }

    #[test]
    fn the_tolerance_is_exact() {
        for (jump, steps) in [(600, false), (601, true)] {
            let mut beats = Beats::new();
            beats.beat(0, 0, 0);
            assert_eq!(beats.beat(5_000, 0, 5_000 + jump).is_some(), steps);
        }
        for (jump, steps) in [(600, false), (601, true)] {
            let mut beats = Beats::new();
            beats.beat(0, 0, 0);
            assert_eq!(beats.beat(5_000, 0, 5_000 - jump).is_some(), steps);
        }
    }

    #[test]
    fn a_step_is_seen_also_between_heartbeats_that_are_an_hour_apart() {
        let hour = 3_600_000_u64;
        for (jump, steps) in [(6_100, false), (6_101, true)] {
            for direction in [1, -1] {
                let mut beats = Beats::new();
                beats.beat(0, 0, 0);
                let database = i64::try_from(hour).unwrap() + direction * jump;
                assert_eq!(beats.beat(hour, 0, database).is_some(), steps);
            }
        }
    }

    #[test]
    fn an_outage_of_the_database_is_no_step_and_a_suspended_process_is_one() {
        let mut beats = Beats::new();
        beats.beat(0, 10, 0);
        assert_eq!(beats.beat(600_000, 10, 600_000), None);
        // The process is suspended for ten minutes, while the monotonic clock stands still.
        let step = beats.beat(605_000, 10, 1_205_000);
        assert!(matches!(step, Some(ClockStep::Forward(_))), "{step:?}");
    }

    #[test]
    fn a_step_makes_no_node_look_silent_and_later_silence_counts_as_ever() {
        let mut beats = Beats::new();
        let (dead_after, hour) = (millis(15_000), 3_600_000);
        let seen_at = |at: i64| {
            let label = Name::new("label", "n").unwrap();
            let beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, millis(5_000));
            NodeRecord::joined(&beat, from_millis(BEGIN + at))
        };
        beats.beat(0, 20, 10);
        // The first two nodes were last seen before the step. The step came just before the second
        // heartbeat.
        let (early, late) = (seen_at(10), seen_at(4_990));
        beats.beat(5_000, 20, 5_010 + hour);
        let after = seen_at(5_010 + hour);
        let sweep =
            NodeSweep::new(dead_after, dead_after).clock(beats.watch.trust(beats.at(60_000)));
        let dead = |node: &NodeRecord, at: i64| sweep.marks_dead(node, from_millis(BEGIN + at));
        for node in [&early, &late, &after] {
            assert!(!dead(node, 15_010 + hour), "{:?}", node.last_seen);
        }
        // The nodes that were last seen before the step are declared dead 20 ms late, because the
        // assumed size of the step is 20 ms too large.
        assert!(dead(&early, 15_011 + hour + 20));
        assert!(dead(&late, 19_991 + hour + 20));
        assert!(dead(&after, 20_011 + hour));
    }

    #[test]
    fn a_step_that_is_taken_back_leaves_no_more_than_its_uncertainty() {
        let mut beats = Beats::new();
        beats.beat(0, 20, 10);
        beats.beat(5_000, 20, 3_605_010);
        beats.beat(10_000, 20, 10_010);
        let trust = beats.watch.trust(beats.at(10_000));
        assert!(trust.now_for(BEGIN, BEGIN + 60_000) >= BEGIN + 60_000 - 40);
    }

    #[test]
    fn a_pass_knows_the_latest_time_it_can_meet() {
        let mut beats = Beats::new();
        assert_eq!(beats.watch.trust(beats.at(0)), ClockTrust::FULL);
        beats.beat(0, 20, 10);
        let trust = beats.watch.trust(beats.at(10_000));
        let latest = BEGIN + 10 + 11_100;
        assert!(trust.allows(latest) && !trust.allows(latest + 1));
    }
}
