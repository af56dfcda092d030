//! The operations that a key-value engine must provide for the store.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::{CallPolicy, StoreInfo};

/// An ordered, transactional key-value engine: embedded, or a client of a server.
///
/// Keys and values are bytes, and the engine orders the keys byte by byte. Each call of the store
/// is one transaction. The store replaces the operation in every error, so an engine can use any
/// operation name.
///
/// # Sizes
/// - A key has 1 to 679 bytes, and a bound of a range up to 680. No key begins with the byte 255,
///   so an engine can store its own data under such keys.
/// - A value may be empty: the entries of the indexes are keys without a value. The row of a job
///   has a few hundred bytes plus its payload, and at most about 2 MB. The row of an archived job
///   also contains the history of the job, which has no limit.
/// - A transaction changes up to 10,000 jobs
///   ([`MAX_BATCH`](ratchet_core::limits::MAX_BATCH)), and several entries for each of them.
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// A transaction of this engine. The type must own its data, because it cannot contain a
    /// reference to the engine. A transaction may move to another thread.
    type Transaction: Transaction;

    /// Returns the name and the version of the engine, for logs and reports.
    fn info(&self) -> StoreInfo;

    /// Begins a transaction.
    ///
    /// # Contract
    /// Transactions must be serializable: the committed transactions have the same effect as if
    /// they had run one after the other. There are two ways to achieve this:
    ///
    /// - The engine allows only one writing transaction at a time.
    /// - [`commit`](Transaction::commit) fails with `Contention` if another transaction has changed
    ///   data that this transaction has read, including the ranges that it has read. The caller of
    ///   the store then repeats the whole call.
    ///
    /// Every transaction, also one that only reads, sees one state of the data. It sees all changes
    /// that were committed before this method was called.
    ///
    /// The store drops a transaction that only reads. It also drops a transaction that could have
    /// written but has nothing to change.
    ///
    /// # Errors
    /// A failure of the engine.
    ///
    /// # Cancel safety
    /// A transaction that is dropped changes nothing.
    async fn begin(&self, access: Access) -> Result<Self::Transaction>;

    /// Returns the deadline of a store call, and how often a call is repeated after contention.
    fn call_policy(&self) -> CallPolicy {
        CallPolicy::default()
    }

    /// Returns a coordinator that sends wakeups through the engine. Returns `None` if the engine
    /// cannot send wakeups. Wakeups then reach only the clients and nodes that share one
    /// [`Checked`](ratchet_core::store::Checked) store or its clones.
    fn coordinator(&self) -> Option<Arc<dyn ClusterCoordinator>> {
        None
    }
}

/// Whether a transaction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The transaction only reads.
    Read,
    /// The transaction reads and writes.
    Write,
}

/// The order in which [`Transaction::range`] returns entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the smallest key to the largest.
    Ascending,
    /// From the largest key to the smallest.
    Descending,
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A transaction. Its reads see its own writes: [`get`](Self::get) and [`range`](Self::range)
/// return what [`put`](Self::put) has stored, and do not return what [`remove`](Self::remove) has
/// deleted.
#[async_trait]
pub trait Transaction: Send {
    /// Returns the time in milliseconds since 1970, by the clock of the engine. All processes that
    /// use the database must use the same clock. The method may return the same time during the
    /// whole transaction.
    ///
    /// The store calls this method once, directly after [`begin`](Engine::begin). It writes this
    /// time into rows, and compares it with the times in rows. So the time must not be earlier than
    /// that of any transaction whose changes this transaction sees: read the clock after the wait
    /// for other writers, and after the snapshot was taken.
    ///
    /// The time must never decrease, even if the clock of the machine is set back, and even after a
    /// restart. So an engine keeps the latest time that it has returned, stores it with each write,
    /// and never returns an earlier time. The times of transactions that only read need not be
    /// stored. This rule does not apply to a clock that a test sets: the conformance suite also
    /// sets the clock back.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn now(&mut self) -> Result<i64>;

    /// Returns the value of a key, or `None` if the key does not exist.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns the first `limit` entries of the range `keys`, in the order `order`. The store never
    /// passes an empty range or a `limit` of 0.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn range(
        &mut self,
        keys: Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>>;

    /// Stores a value under a key. Replaces the value that the key already has, if any.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()>;

    /// Deletes a key, if it exists.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn remove(&mut self, key: Vec<u8>) -> Result<()>;

    /// Makes all changes of the transaction durable and visible, or none of them. Durable means
    /// that the changes survive a power failure.
    ///
    /// # Errors
    /// - `Contention` if another transaction prevents this one. Nothing has changed, and the caller
    ///   repeats the whole call.
    /// - `Unavailable` or `Timeout` if it is unknown whether the changes were made.
    /// - Any other kind if the engine failed and nothing has changed.
    async fn commit(self) -> Result<()>;
}
