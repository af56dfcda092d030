use std::fmt;

use super::command::{Answer, Command, Entry};
use super::tables::Tables;
use crate::error::{InvalidInput, Result};
use crate::model::document;

/// A copy of all data that a [`MemoryStore`](super::MemoryStore) had at one moment. The default is
/// the data of an empty store.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
/// # use std::sync::Arc;
/// use ratchet::{MemoryStore, NewJob, Ratchet};
///
/// let store = MemoryStore::new();
/// let before = store.snapshot();
/// let client = Ratchet::client(Arc::new(store.clone()));
/// let id = client.enqueue(NewJob::new("greet", "Ada")).await?.id();
/// store.rewind(&before);
/// assert!(client.job(id).await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Snapshot(pub(super) Tables);

impl Snapshot {
    /// Applies a command to the data at the time of the entry, and returns its answer. Both depend
    /// on nothing else, so a history gives the same data and answers wherever it is replayed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ratchet::Result<()> {
    /// use std::sync::{Arc, Mutex};
    ///
    /// use ratchet::{MemoryStore, NewJob, Ratchet};
    /// use ratchet_core::memory::{Entry, Snapshot};
    ///
    /// let log: Arc<Mutex<Vec<String>>> = Arc::default();
    /// let entries = Arc::clone(&log);
    /// let store = MemoryStore::new().with_log(move |entry, _| {
    ///     entries.lock().unwrap().push(entry.encode().unwrap());
    /// });
    /// let client = Ratchet::client(Arc::new(store.clone()));
    /// client.enqueue(NewJob::new("greet", "Ada")).await?;
    ///
    /// let mut replayed = Snapshot::default();
    /// for entry in log.lock().unwrap().iter() {
    ///     replayed.apply(&Entry::decode(entry)?);
    /// }
    /// assert_eq!(replayed.encode()?, store.snapshot().encode()?);
    /// # Ok(()) }
    /// ```
    pub fn apply(&mut self, entry: &Entry<'_>) -> Answer {
        self.0.apply(entry)
    }

    /// Returns the answer to a command that changes nothing at this time, in milliseconds since
    /// 1970. Returns `None` if the command changes the data, or may change it. A log need not
    /// contain a command that changes nothing, such as a claim that finds no job.
    #[must_use]
    pub fn unchanged_by(&self, command: &Command<'_>, now: i64) -> Option<Answer> {
        self.0.unchanged_by(command, now)
    }

    /// Sets the values of a command that are derived from the data and from the time-zone data of
    /// this process. Call it before the command is applied at this time, in milliseconds since
    /// 1970.
    pub fn complete(&self, command: &mut Command<'_>, now: i64) {
        self.0.complete(command, now);
    }

    /// Encodes the data as a JSON document that [`decode`](Self::decode) of this version and of
    /// later versions reads. The same data always gives the same document.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the data cannot be serialized.
    pub fn encode(&self) -> Result<String, InvalidInput> {
        document::encode(&self.0)
    }

    /// Decodes a document that [`encode`](Self::encode) of this version or of an earlier version
    /// returned.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] for `document` if the text is not such a document.
    pub fn decode(document: &str) -> Result<Self, InvalidInput> {
        let mut tables: Tables = document::decode(document)?;
        tables.rebuild();
        Ok(Self(tables))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}
