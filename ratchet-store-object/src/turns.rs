//! Lets other processes write while this one has much to write.

use std::time::Duration;

use tokio::time::Instant;

/// After how many puts without a pause this process pauses: if others write, and if none does.
const RUN: [u32; 2] = [4, 64];
/// How many times as long as a put a pause is. Another process that has lost a race reads the
/// segment that won, looks for the next one, and puts: its put arrives after three requests.
const PAUSE: u32 = 3;
/// The longest pause, and the shortest that is worth a timer.
const LONGEST: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_millis(1);

/// The puts of this process.
///
/// A process whose put has won can put the next segment at once. All others must first read what it
/// has put, so they would lose every race against a process that never stops. So it pauses now and
/// then. Meanwhile its calls gather, which makes its next segment larger.
#[derive(Debug)]
pub(crate) struct Turns {
    /// How many puts have won without a pause.
    run: u32,
    /// After how many the next pause is due.
    limit: u32,
    /// When the last put ended, and how long it took.
    last: Option<(Instant, Duration)>,
}

impl Turns {
    pub(crate) const fn new() -> Self {
        Self {
            run: 0,
            limit: RUN[0],
            last: None,
        }
    }

    /// Notes a put of this process that has won.
    pub(crate) fn won(&mut self, began: Instant, ended: Instant) {
        let idle = self
            .last
            .map(|(last, latency)| (began.saturating_duration_since(last), latency));
        if idle.is_none_or(|(idle, latency)| idle >= latency * PAUSE) {
            // The others had their turn.
            self.run = 0;
        }
        self.run += 1;
        self.last = Some((ended, ended.saturating_duration_since(began)));
    }

    /// Notes a segment of another process.
    pub(crate) fn lost(&mut self) {
        self.run = 0;
        self.limit = RUN[0];
    }

    /// Returns how long this process must pause before its next put.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        let (_, latency) = self.last?;
        let pause = (latency * PAUSE).min(LONGEST);
        if self.run < self.limit || pause < SHORTEST {
            return None;
        }
        self.run = 0;
        self.limit = (self.limit * 2).min(RUN[1]);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::time;

    use super::*;

    const LATENCY: Duration = Duration::from_millis(20);

    /// Returns after how many puts without a rest this process pauses.
    fn run(turns: &mut Turns) -> u32 {
        let now = time::monotonic();
        for puts in 1..1_000 {
            turns.won(now, now + LATENCY);
            // The next put begins when this one has ended.
            turns.last = turns.last.map(|(_, latency)| (now, latency));
            if let Some(pause) = turns.pause() {
                assert_eq!(pause, 3 * LATENCY);
                return puts;
            }
        }
        0
    }

    #[test]
    fn pauses_are_rare_while_no_other_process_writes() {
        let mut turns = Turns::new();
        let runs: Vec<u32> = (0..6).map(|_| run(&mut turns)).collect();
        assert_eq!(runs, [4, 8, 16, 32, 64, 64]);
        turns.lost();
        assert_eq!(run(&mut turns), 4);
    }

    #[test]
    fn a_process_that_rests_needs_no_pause() {
        let mut turns = Turns::new();
        let mut now = time::monotonic();
        for _ in 0..100 {
            turns.won(now, now + LATENCY);
            assert_eq!(turns.pause(), None);
            now += 4 * LATENCY;
        }
    }
}
