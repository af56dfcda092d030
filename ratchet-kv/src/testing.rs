//! Functions that damage or count the rows of a store, for fixtures of the conformance suite.
//!
//! The layout of the keys is private. A fixture can use these functions to implement the traits
//! `Vandal` and `Residue` of the suite.

use ratchet_core::model::FairScope;
use ratchet_core::store::StoredLock;
use ratchet_core::{JobId, Name, Result, StoreError, StoreErrorKind};
use serde_json::{Map, Value, json};

use crate::call::Row;
use crate::engine::Engine;
use crate::fair_limits::limit_key;
use crate::keys::{Key, Table};
use crate::store::KvStore;

/// The tables in which each row belongs to one job.
const OF_JOBS: [Table; 19] = [
    Table::Job,
    Table::History,
    Table::KeyTurn,
    Table::Turn,
    Table::Asleep,
    Table::PendingFair,
    Table::Pending,
    Table::Running,
    Table::Place,
    Table::Holding,
    Table::Ended,
    Table::Unique,
    Table::Lane,
    Table::Child,
    Table::Signal,
    Table::Deadline,
    Table::Expiry,
    Table::Tag,
    Table::State,
];

/// Makes one field of a job unreadable. Claims and lists can still find the job.
///
/// # Errors
/// A failure of the engine, or `Corrupt` if there is no such job.
pub async fn spoil_job<E: Engine>(store: &KvStore<E>, job: JobId) -> Result<()> {
    spoil_field(store, job, "attempts").await
}

/// Makes this field of the document of a job unreadable. The names of the fields are those of
/// `StoredJob::encode`.
///
/// # Errors
/// A failure of the engine, or `Corrupt` if there is no such job.
pub async fn spoil_field<E: Engine>(store: &KvStore<E>, job: JobId, field: &str) -> Result<()> {
    spoil(store, Key::new(Table::Job).job(job), field).await
}

/// Damages a job so much that reads do not return it and archive passes do not move it. Purges and
/// selections still find the job.
///
/// # Errors
/// A failure of the engine, or `Corrupt` if there is no such job.
pub async fn hide_job<E: Engine>(store: &KvStore<E>, job: JobId) -> Result<()> {
    spoil_field(store, job, "kind").await
}

/// Makes the schedule of a recurring definition unreadable.
///
/// # Errors
/// A failure of the engine, or `Corrupt` if there is no such definition.
pub async fn spoil_recurring<E: Engine>(store: &KvStore<E>, name: &Name) -> Result<()> {
    let key = Key::new(Table::Recurring).name(name.as_str());
    spoil(store, key, "definition").await
}

/// Makes a limit of fair keys unreadable.
///
/// # Errors
/// A failure of the engine, or `Corrupt` if there is no such limit.
pub async fn spoil_fair_limit<E: Engine>(store: &KvStore<E>, scope: &FairScope) -> Result<()> {
    spoil(store, limit_key(scope), "max").await
}

/// Makes the owner of a lock unreadable. Also adds a lock with an invalid name, which is `name`
/// followed by the character U+0001.
///
/// # Errors
/// A failure of the engine, or `Corrupt` if there is no such lock.
pub async fn spoil_lock<E: Engine>(store: &KvStore<E>, name: &Name) -> Result<()> {
    let key = |name: &str| Key::new(Table::Lock).name(name);
    let mut call = store.write("spoil").await?;
    let lock = call.read(key(name.as_str()), StoredLock::decode).await?;
    let lock = lock.ok_or_else(missing)?;
    call.write(key(&format!("{name}\u{1}")), lock.encode())
        .await?;
    call.commit().await?;
    spoil(store, key(name.as_str()), "owner").await
}

/// Returns the number of rows and index entries that belong to single jobs.
///
/// # Errors
/// A failure of the engine.
pub async fn rows_of_jobs<E: Engine>(store: &KvStore<E>) -> Result<u64> {
    let mut call = store.read("count").await?;
    let mut count = 0;
    for table in OF_JOBS {
        count += call.all(Key::new(table).all()).await?.len() as u64;
    }
    Ok(count)
}

/// Replaces a field of a JSON document with a value of a type that this field never has.
async fn spoil<E: Engine>(store: &KvStore<E>, key: Key, field: &str) -> Result<()> {
    let mut call = store.write("spoil").await?;
    let value = call.get(key.clone()).await?.ok_or_else(missing)?;
    let document = Row::split(&value).document;
    let keys = &value[document.len()..];
    let mut document = fields(document)?;
    document.insert(field.to_owned(), json!({"is": "damaged"}));
    let mut row = Value::Object(document).to_string().into_bytes();
    row.extend(keys);
    call.put(key, row).await?;
    call.commit().await
}

fn fields(document: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice(document)
        .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, "spoil").with_source(error))
}

fn missing() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "spoil").with_source("the row to damage is not stored")
}
