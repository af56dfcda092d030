//! Opens the log: finds a snapshot, or begins a new log.

use object_store::path::Path;
use ratchet_core::memory::Snapshot;
use ratchet_core::{SchemaProblem, StoreErrorKind};
use uuid::Uuid;

use crate::bucket::{Bucket, Created};
use crate::document::{self, Header};
use crate::error::{Failure, Result};
use crate::view::View;

/// How often the snapshots are listed, because those of the list before were deleted.
const LISTS: u32 = 5;

/// Data of the log at one segment. Segments may follow.
pub(crate) struct Opened {
    pub(crate) data: Snapshot,
    pub(crate) view: View,
}

/// Opens the data that the manifest names. If the bucket contains no log, begins one if it may.
///
/// The manifest only saves a list of the bucket: it may be missing, or name an old snapshot.
pub(crate) async fn open(bucket: &Bucket, may_begin: bool) -> Result<Opened> {
    if let Some(found) = bucket.get(&bucket.manifest()).await? {
        let name = match document::decode(&found) {
            Ok((_, snapshot)) => bucket.snapshots().join(snapshot.trim_end()),
            Err(failure) if failure.kind != StoreErrorKind::Corrupt => return Err(failure),
            Err(failure) => {
                tracing::warn!(
                    ?failure,
                    "the manifest cannot be read; listing the snapshots"
                );
                return newest(bucket, may_begin).await;
            }
        };
        if let Loaded::Opened(opened) = load(bucket, &name).await? {
            return Ok(*opened);
        }
    }
    newest(bucket, may_begin).await
}

/// Opens the newest snapshot that can be read, or the log from its first segment. If the bucket
/// contains no log, begins one if it may.
pub(crate) async fn newest(bucket: &Bucket, may_begin: bool) -> Result<Opened> {
    for _ in 0..LISTS {
        let snapshots = bucket.list(&bucket.snapshots()).await?;
        let mut damaged = 0;
        for snapshot in snapshots.iter().rev() {
            match load(bucket, &snapshot.location).await? {
                Loaded::Opened(opened) => return Ok(*opened),
                Loaded::Damaged => damaged += 1,
                Loaded::Missing => {}
            }
        }
        if damaged == snapshots.len() {
            return begin(bucket, damaged, may_begin).await;
        }
        // Some were deleted since the list was read, so there are newer ones.
    }
    Err(Failure::new(
        StoreErrorKind::Unavailable,
        "snapshots are deleted before this process can read them; increase the retention",
    ))
}

/// What became of the attempt to load a snapshot.
enum Loaded {
    Opened(Box<Opened>),
    Damaged,
    Missing,
}

/// Loads a snapshot.
async fn load(bucket: &Bucket, name: &Path) -> Result<Loaded> {
    let Some(found) = bucket.get(name).await? else {
        return Ok(Loaded::Missing);
    };
    // The data of many jobs takes long to decode.
    let decoded = tokio::task::spawn_blocking(move || {
        let (header, body) = document::decode(&found)?;
        let data = Snapshot::decode(body).map_err(|error| {
            let problem = format!("contains data that cannot be decoded: {error}");
            Failure::unknown_format(found.name.as_ref(), &problem)
        })?;
        Ok::<_, Failure>(Opened {
            data,
            view: View::new(&header),
        })
    });
    match decoded.await {
        Ok(Ok(opened)) => Ok(Loaded::Opened(Box::new(opened))),
        Ok(Err(failure)) if failure.kind == StoreErrorKind::Corrupt => {
            tracing::warn!(?failure, "a snapshot is damaged; trying another one");
            Ok(Loaded::Damaged)
        }
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure::new(StoreErrorKind::Other, error.to_string())),
    }
}

/// Opens a log from its first segment. Puts this segment if the bucket contains no log.
async fn begin(bucket: &Bucket, damaged_snapshots: usize, may_begin: bool) -> Result<Opened> {
    let name = bucket.segment(0);
    let header = Header::new(0, Uuid::new_v4(), 0);
    let first = |header: &Header| Opened {
        data: Snapshot::default(),
        view: View::new(header),
    };
    let found = match bucket.get(&name).await? {
        Some(found) => found,
        None if damaged_snapshots > 0 || !bucket.list(&bucket.segments()).await?.is_empty() => {
            return Err(Failure::new(
                StoreErrorKind::Corrupt,
                format!(
                    "{}: the log does not begin with its first segment, and no snapshot can be \
                     read ({damaged_snapshots} are damaged); were objects deleted? Restore them \
                     from a backup, or use another prefix",
                    bucket.describe()
                ),
            ));
        }
        None if !may_begin => {
            return Err(Failure::new(
                StoreErrorKind::SchemaMismatch(SchemaProblem::NoFile),
                format!(
                    "{}: there is no log, and `migrate` is off",
                    bucket.describe()
                ),
            ));
        }
        None => match bucket.create(&name, document::encode(&header, [])?).await? {
            Created::Created => return Ok(first(&header)),
            Created::Taken => bucket.get(&name).await?.ok_or_else(|| {
                Failure::corrupt(name.as_ref(), "was deleted while the log was opened")
            })?,
        },
    };
    Ok(first(&document::decode(&found)?.0))
}
