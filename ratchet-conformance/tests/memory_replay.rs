//! Runs the suite on the in-memory store, and replays the history of each case: the serialized
//! commands must give the same answers and the same data, also from snapshots in the middle.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ratchet_conformance::{BoxError, Fixture, MemoryFixture, Power, Provision, Suite, TestClock};
use ratchet_core::memory::{Answer, Entry, Snapshot};
use ratchet_core::{InvalidInput, SharedStore};

/// After this many commands, the replay continues from a serialized snapshot.
const SNAPSHOT_EVERY: usize = 7;

/// The data that the commands of a store give when they are replayed.
#[derive(Default)]
struct Replay {
    data: Snapshot,
    commands: usize,
}

impl Replay {
    /// Replays a command from its serialized form.
    fn follow(&mut self, entry: &Entry<'_>, answer: &Answer) -> Result<(), InvalidInput> {
        let (text, answer) = (entry.encode()?, answer.encode()?);
        let read = Entry::decode(&text)?;
        assert_eq!(read.encode()?, text, "a command round-trips");
        assert_eq!(
            Answer::decode(&answer)?.encode()?,
            answer,
            "an answer round-trips"
        );
        let replayed = self.data.apply(&read).encode()?;
        assert_eq!(
            replayed, answer,
            "the replay gives another answer to {text}"
        );
        self.commands += 1;
        if self.commands.is_multiple_of(SNAPSHOT_EVERY) {
            let snapshot = self.data.encode()?;
            self.data = Snapshot::decode(&snapshot)?;
            assert_eq!(self.data.encode()?, snapshot, "the data round-trips");
        }
        Ok(())
    }
}

#[derive(Default)]
struct ReplayFixture {
    memory: MemoryFixture,
    replay: Arc<Mutex<Replay>>,
}

impl ReplayFixture {
    fn check(&self) -> Result<(), InvalidInput> {
        let stored = self.memory.store().snapshot().encode()?;
        let replay = self.replay.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(replay.data.encode()?, stored, "the replay gives other data");
        Ok(())
    }
}

#[async_trait]
impl Fixture for ReplayFixture {
    async fn open(&self) -> Result<SharedStore, BoxError> {
        let replay = Arc::clone(&self.replay);
        let store = self.memory.store().with_log(move |entry, answer| {
            let mut replay = replay.lock().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(replay.follow(entry, answer), Ok(()));
        });
        Ok(Arc::new(store))
    }

    fn clock(&self) -> Option<&dyn TestClock> {
        Some(self.memory.clock())
    }

    async fn teardown(&self) {
        assert_eq!(self.check(), Ok(()));
    }
}

fn main() -> ExitCode {
    Suite::new("memory replay", Power::MEMORY)
        .run(async { Provision::ready(|| async { Ok(ReplayFixture::default()) }) })
}
