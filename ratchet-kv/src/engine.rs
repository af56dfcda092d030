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
/// Keys and values are bytes. Keys are at most a few hundred bytes long, and the engine orders them
/// byte by byte. Each call of the store is one transaction. The store replaces the operation in
/// every error, so an engine can use any operation name.
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// A transaction of this engine.
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
    ///   data that this transaction has read. The caller of the store then repeats the whole call.
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
    /// cannot send wakeups. Wakeups then reach only the clients and nodes that share this store.
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

/// A transaction. Its reads see its own writes.
#[async_trait]
pub trait Transaction: Send {
    /// Returns the time in milliseconds since 1970, by the clock of the engine. All processes that
    /// use the database must use the same clock. The method may return the same time during the
    /// whole transaction.
    ///
    /// The time must never decrease, even if the clock of the machine is set back, and even after a
    /// restart. So an engine stores the latest time at which it has written, and never returns an
    /// earlier time. This does not apply to a clock that a test sets: the conformance suite also
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

    /// Makes all changes of the transaction durable and visible. If the commit fails, makes none of
    /// them.
    ///
    /// # Errors
    /// `Contention` if the transaction must be repeated, or a failure of the engine.
    async fn commit(self) -> Result<()>;
}
