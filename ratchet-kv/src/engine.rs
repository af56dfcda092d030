//! What the store needs of an engine.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::cluster::ClusterCoordinator;
use ratchet_core::store::{CallPolicy, StoreInfo};

/// An ordered, transactional key-value engine: embedded, or a client of a server.
///
/// Keys and values are bytes. Keys are at most a few hundred bytes long, and are ordered byte by
/// byte. Each call of the store is one transaction. The store sets the operation of every error, so
/// an engine can name any.
#[async_trait]
pub trait Engine: Debug + Send + Sync + 'static {
    /// A transaction of this engine.
    type Transaction: Transaction;

    /// Returns the name and the version of the engine, for logs and reports.
    fn info(&self) -> StoreInfo;

    /// Begins a transaction.
    ///
    /// # Contract
    /// Transactions must be serializable: the committed ones have the same effect as if they had
    /// run one after the other. An engine can achieve this with one writer at a time, or it can let
    /// [`commit`](Transaction::commit) fail with `Contention` if the transaction has read something
    /// that another one has changed since. In the second case, the store's caller repeats the whole
    /// call.
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

    /// Returns a coordinator that sends wakeups through the engine, if it has one. Without one,
    /// wakeups reach the clients and nodes that share the store.
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
    /// use the database must see one clock. It may return the same time during the whole
    /// transaction.
    ///
    /// The clock must not go back when the clock of the machine does, not even over a restart. So
    /// an engine stores the latest time of a write, and returns at least that time. If a test sets
    /// the clock, return what it sets: the suite also sets it back.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn now(&mut self) -> Result<i64>;

    /// Reads a value. `None` if there is no such key.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Reads the first `limit` entries of a range of keys in this order. The store never passes an
    /// empty range or a `limit` of 0.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn range(
        &mut self,
        keys: Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>>;

    /// Stores a value, and replaces an existing one.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()>;

    /// Deletes a key, if it exists.
    ///
    /// # Errors
    /// A failure of the engine.
    async fn remove(&mut self, key: Vec<u8>) -> Result<()>;

    /// Makes the changes durable and visible, all of them or, on an error, none.
    ///
    /// # Errors
    /// `Contention` if the transaction must be repeated, or a failure of the engine.
    async fn commit(self) -> Result<()>;
}
