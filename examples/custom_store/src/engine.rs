//! An engine for `KvStore`: redb, an embedded database in one file.
//!
//! redb has one writer at a time, and readers that each see a snapshot, so its transactions are
//! serializable. It locks its file, so only one process at a time can open it.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet::store_api::store::{CallPolicy, StoreInfo};
use ratchet::store_api::time::{to_millis, wall_clock};
use ratchet::{Checked, Result, StoreError, StoreErrorKind};
use ratchet_kv::{Access, Engine, Entry, KvStore, Order, Transaction};
use redb::{
    Database, Error, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("ratchet");

/// The key of the time of the last write. It differs from all keys of the store, which begin with
/// smaller bytes.
const CLOCK: &[u8] = &[u8::MAX];

/// Opens the store in this file, and creates the file if it does not exist. The clients and nodes
/// that share the returned store or its clones wake each other up.
///
/// # Errors
/// `Unavailable` if another process has the file open. Otherwise, an error of the file system or
/// of the database.
///
/// # Cancel safety
/// Dropping the future may leave an empty file behind.
pub async fn open(path: impl AsRef<Path>) -> Result<Checked<KvStore<RedbEngine>>> {
    open_with(path, || to_millis(wall_clock())).await
}

/// Does the same as [`open`], but reads the clock of the machine with `machine`, which returns
/// milliseconds since 1970.
///
/// # Errors
/// The same as for [`open`].
///
/// # Cancel safety
/// The same as for [`open`].
pub async fn open_with(
    path: impl AsRef<Path>,
    machine: impl Fn() -> i64 + Send + Sync + 'static,
) -> Result<Checked<KvStore<RedbEngine>>> {
    let (database, latest) = open_file(path.as_ref()).await?;
    let latest = AtomicI64::new(latest);
    // The clock of the machine may be set back, but the clock of a store must not go back.
    let clock = move || {
        let now = machine();
        latest.fetch_max(now, Ordering::SeqCst).max(now)
    };
    Ok(Checked::new(KvStore::new(RedbEngine::new(database, clock))))
}

/// Opens the file. Returns the database, and the time of its last write.
async fn open_file(path: &Path) -> Result<(Database, i64)> {
    let path = path.to_owned();
    let open = move || {
        let database = Database::create(path)?;
        let transaction = database.begin_write()?;
        let table = transaction.open_table(TABLE)?;
        let latest = table.get(CLOCK)?;
        let latest = latest.and_then(|latest| latest.value().try_into().ok());
        drop(table);
        transaction.commit()?;
        Ok((database, latest.map_or(0, i64::from_be_bytes)))
    };
    blocking(open).await
}

/// A database of redb.
#[derive(Clone)]
pub struct RedbEngine {
    database: Arc<Database>,
    /// Writers wait for this lock, because a writer that waits inside redb blocks a thread.
    writer: Arc<Mutex<()>>,
    clock: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl RedbEngine {
    /// Creates an engine with the clock of a test, in milliseconds since 1970.
    ///
    /// # Errors
    /// The same as for [`open`].
    ///
    /// # Cancel safety
    /// The same as for [`open`].
    pub async fn with_clock(
        path: impl AsRef<Path>,
        clock: impl Fn() -> i64 + Send + Sync + 'static,
    ) -> Result<Self> {
        let (database, _) = open_file(path.as_ref()).await?;
        Ok(Self::new(database, clock))
    }

    fn new(database: Database, clock: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self {
            database: Arc::new(database),
            writer: Arc::default(),
            clock: Arc::new(clock),
        }
    }
}

impl fmt::Debug for RedbEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedbEngine")
    }
}

#[async_trait]
impl Engine for RedbEngine {
    type Transaction = RedbTransaction;

    fn info(&self) -> StoreInfo {
        StoreInfo {
            backend: "redb",
            version: "4".to_owned(),
        }
    }

    fn call_policy(&self) -> CallPolicy {
        // A call may change 10,000 jobs, and each of them writes several keys. Every commit flushes
        // the disk, so concurrent enqueues are committed together.
        CallPolicy::within(Duration::from_secs(60)).gathers(true)
    }

    async fn begin(&self, access: Access) -> Result<RedbTransaction> {
        let writer = match access {
            Access::Read => None,
            Access::Write => Some(Arc::clone(&self.writer).lock_owned().await),
        };
        let database = Arc::clone(&self.database);
        let begin = move || match writer {
            None => Ok(Inner::Read(database.begin_read()?)),
            Some(writer) => Ok(Inner::Write(Writer {
                transaction: Box::new(database.begin_write()?),
                _turn: writer,
            })),
        };
        let inner = blocking(begin).await?;
        // The clock is read after the wait for the lock, so that a later writer has a later time.
        let now = (self.clock)();
        Ok(RedbTransaction { inner, now })
    }
}

/// A transaction of redb.
pub struct RedbTransaction {
    inner: Inner,
    now: i64,
}

impl fmt::Debug for RedbTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedbTransaction")
    }
}

enum Inner {
    Read(ReadTransaction),
    Write(Writer),
}

/// The transaction that may write. The fields are dropped in this order: the transaction ends, and
/// then the next writer begins.
struct Writer {
    transaction: Box<WriteTransaction>,
    _turn: OwnedMutexGuard<()>,
}

impl RedbTransaction {
    /// Calls `read` with the table.
    fn with<R>(
        &self,
        read: impl FnOnce(&dyn Readable) -> Result<R, redb::StorageError>,
    ) -> Result<R, Error> {
        Ok(match &self.inner {
            Inner::Read(transaction) => read(&transaction.open_table(TABLE)?)?,
            Inner::Write(writer) => read(&writer.transaction.open_table(TABLE)?)?,
        })
    }

    /// Returns the transaction, or an error if it may only read.
    fn writer(&self) -> Result<&WriteTransaction> {
        match &self.inner {
            Inner::Write(writer) => Ok(&writer.transaction),
            Inner::Read(_) => Err(StoreError::new(StoreErrorKind::Other, "write")),
        }
    }
}

/// The bytes of a key or a value, borrowed from a page of the database.
type Bytes<'a> = redb::AccessGuard<'a, &'static [u8]>;

/// The reads that are possible in a write transaction as well as in a read transaction.
trait Readable {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, redb::StorageError>;

    fn entries(
        &self,
        keys: &Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>, redb::StorageError>;
}

impl<T: ReadableTable<&'static [u8], &'static [u8]>> Readable for T {
    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, redb::StorageError> {
        let value = self.get(key)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn entries(
        &self,
        keys: &Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>, redb::StorageError> {
        let entries = self.range(keys.start.as_slice()..keys.end.as_slice())?;
        let owned = |entry: Result<(Bytes<'_>, Bytes<'_>), _>| {
            let (key, value) = entry?;
            Ok((key.value().to_vec(), value.value().to_vec()))
        };
        match order {
            Order::Ascending => entries.map(owned).take(limit).collect(),
            Order::Descending => entries.rev().map(owned).take(limit).collect(),
        }
    }
}

#[async_trait]
impl Transaction for RedbTransaction {
    async fn now(&mut self) -> Result<i64> {
        Ok(self.now)
    }

    async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with(|table| table.value(key)).map_err(failed)
    }

    async fn range(
        &mut self,
        keys: Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let entries = self.with(|table| table.entries(&keys, order, limit));
        entries.map_err(failed)
    }

    async fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        let table = self.writer()?.open_table(TABLE);
        let mut table = table.map_err(|error| failed(error.into()))?;
        let put = table.insert(key.as_slice(), value.as_slice());
        put.map(drop).map_err(|error| failed(error.into()))
    }

    async fn remove(&mut self, key: Vec<u8>) -> Result<()> {
        let table = self.writer()?.open_table(TABLE);
        let mut table = table.map_err(|error| failed(error.into()))?;
        let removed = table.remove(key.as_slice());
        removed.map(drop).map_err(|error| failed(error.into()))
    }

    async fn commit(mut self) -> Result<()> {
        self.put(CLOCK.to_vec(), self.now.to_be_bytes().to_vec())
            .await?;
        match self.inner {
            // If the future is dropped, the thread still ends the commit. So the thread gets the
            // lock, and the next writer begins after the commit.
            Inner::Write(writer) => {
                blocking(move || {
                    let Writer { transaction, _turn } = writer;
                    Ok(transaction.commit()?)
                })
                .await
            }
            Inner::Read(_) => Ok(()),
        }
    }
}

/// Runs `work` on Tokio's pool of blocking threads, because `work` waits for a lock or for the
/// disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(failed),
        Err(error) => Err(StoreError::new(StoreErrorKind::Other, "redb").with_source(error)),
    }
}

fn failed(error: Error) -> StoreError {
    let kind = match &error {
        Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => StoreErrorKind::Full,
        // After such a failure of a commit, the changes may be in the file.
        Error::DatabaseAlreadyOpen | Error::Io(_) | Error::PreviousIo => {
            StoreErrorKind::Unavailable
        }
        Error::Corrupted(_) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Other,
    };
    StoreError::new(kind, "redb").with_source(error)
}
