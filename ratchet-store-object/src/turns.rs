//! Lets other processes write while this one has much to write.

use std::time::Duration;

use ratchet_core::time;
use tokio::time::Instant;
use uuid::Uuid;

use crate::bucket::Bucket;
use crate::document::{self, Header};
use crate::error::Result;
use crate::log::Log;

/// After how many puts without a pause this process pauses: if others write, and if none does.
const RUN: [u32; 2] = [4, 64];
/// How many times as long as a put a pause is. Another process that has lost a race reads the
/// segment that won, looks for the next one, and puts: its put arrives after three requests.
const PAUSE: u32 = 3;
/// The longest pause, and the shortest that is worth a timer.
const LONGEST: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_millis(1);
/// After how many lost races this process asks the others for a longer pause, and the longest pause
/// for which another process can ask.
const LOST: u32 = 3;
const LONGEST_ASKED: Duration = Duration::from_secs(5);

/// The puts of this process.
///
/// A process whose put has won can put the next segment at once. All others must first read what it
/// has put, so they would lose every race against a process that never stops. So it pauses now and
/// then. Meanwhile its calls gather, which makes its next segment larger.
///
/// The requests of another process may take much longer than those of this one, so that such a
/// pause is too short. So a process that keeps losing puts a note, which names the pause that it
/// needs. The others read the note in their pauses.
#[derive(Debug)]
pub(crate) struct Turns {
    /// How many puts have won without a pause.
    run: u32,
    /// After how many the next pause is due.
    limit: u32,
    /// When the last put ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// How many puts have lost since the last one that won.
    lost: u32,
    /// The last note that this process has put, or has read.
    note: Uuid,
}

impl Turns {
    pub(crate) const fn new() -> Self {
        Self {
            run: 0,
            limit: RUN[0],
            last: None,
            lost: 0,
            note: Uuid::nil(),
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
        self.lost = 0;
        self.last = Some((ended, ended.saturating_duration_since(began)));
    }

    /// Notes a segment of another process.
    pub(crate) fn passed(&mut self) {
        self.run = 0;
        self.limit = RUN[0];
    }

    /// Notes a put of this process that has lost. Returns the id of the note that it must put if it
    /// has lost several times.
    fn lost(&mut self) -> Option<Uuid> {
        self.lost += 1;
        self.lost.is_multiple_of(LOST).then(|| {
            self.note = Uuid::new_v4();
            self.note
        })
    }

    /// Notes that this process has read the note with this id. Returns whether it is a new one of
    /// another process.
    fn is_new(&mut self, note: Uuid) -> bool {
        let is_new = self.note != note;
        if is_new {
            self.note = note;
            self.passed();
        }
        is_new
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

impl Log {
    /// Pauses if it is the turn of the other processes. Returns whether there was a pause.
    pub(crate) async fn take_turns(&self) -> bool {
        let pause = self.turns().pause();
        let Some(pause) = pause else {
            return false;
        };
        let began = time::monotonic();
        let note = tokio::time::timeout(pause, self.asked_pause()).await;
        let asked = note.ok().flatten().unwrap_or(pause);
        tokio::time::sleep_until(began + asked.max(pause)).await;
        true
    }

    /// Returns the pause for which another process has asked since the last time.
    async fn asked_pause(&self) -> Option<Duration> {
        let found = self.bucket.get_once(&self.bucket.waiting()).await;
        let found = found.ok().flatten()?;
        let (header, body) = document::decode(&found).ok()?;
        let asked = Duration::from_millis(body.parse().ok()?);
        let is_new = self.turns().is_new(header.id);
        is_new.then_some(asked.min(LONGEST_ASKED))
    }

    /// Notes a put that has lost. `began` is when the put began; now this process has read what has
    /// won, and can put again. If it has lost several times, asks the others for a pause.
    pub(crate) async fn lose(&self, began: Instant) {
        let note = self.turns().lost();
        if let Some(id) = note {
            // One attempt may have begun just before the pause, and the next one must end in it.
            let needed = began.elapsed() * 2;
            if let Err(failure) = ask_for_pause(&self.bucket, id, needed).await {
                tracing::debug!(?failure, "could not ask for a pause");
            }
        }
    }
}

/// Puts the note by which a process asks the others for a pause.
async fn ask_for_pause(bucket: &Bucket, id: Uuid, needed: Duration) -> Result<()> {
    let note = document::encode(&Header::new(0, id, 0), [&*needed.as_millis().to_string()])?;
    bucket.put(&bucket.waiting(), note).await
}

#[cfg(test)]
mod tests {
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
        turns.passed();
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
