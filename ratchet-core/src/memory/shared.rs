//! Memory stores in several processes that share their commands by a log.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{Answer, Command, MemoryStore, Snapshot};
use crate::error::Result;

/// A log that orders the commands of several processes. Each process applies the commands of the
/// log, in its order, to its own data. [`MemoryStore::replicated`] creates a store on such data.
#[async_trait]
pub trait CommandLog: Debug + Send + Sync + 'static {
    /// Appends a command to the log, applies it to the data after all commands before it, and
    /// returns its answer. Before the command is appended, [`Snapshot::complete`] completes it. A
    /// command that changes nothing need not be appended: see [`Snapshot::unchanged_by`].
    ///
    /// # Errors
    /// A failure of the log. Whether the command is in the log is then unknown, unless the kind of
    /// the error says that nothing has changed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the command may be appended nevertheless.
    async fn append(&self, command: Command<'static>) -> Result<Answer>;

    /// Waits until the data contains all commands that any process had appended before this call.
    ///
    /// # Errors
    /// A failure of the log.
    async fn refresh(&self) -> Result<()>;

    /// Returns the time at which the data is read, in milliseconds since 1970. It is not earlier
    /// than that of the last command in the data. The caller holds the lock of the data.
    fn now(&self) -> i64;
}

impl MemoryStore {
    /// Creates a store on data to which `log` applies the commands of several processes. Every
    /// call of the store waits for the log.
    #[must_use]
    pub fn replicated(data: Arc<Mutex<Snapshot>>, log: Arc<dyn CommandLog>) -> Self {
        Self {
            data,
            shared: Some(log),
            ..Self::new()
        }
    }
}
