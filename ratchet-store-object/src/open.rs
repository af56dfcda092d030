//! Opens the log: finds a snapshot, or begins a new log.

use object_store::path::Path;
use ratchet_core::memory::Snapshot;
use ratchet_core::{SchemaProblem, StoreErrorKind};
use uuid::Uuid;

use crate::bucket::{self, Bucket, Created};
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
    if let Some(name) = newest_name(bucket).await?
        && let Loaded::Opened(opened) = load(bucket, &name).await?
    {
        return Ok(*opened);
    }
    for _ in 0..LISTS {
        let damaged = match search(bucket, None).await? {
            Search::Opened(opened) => return Ok(*opened),
            Search::Nothing(damaged) => damaged,
        };
        let begun = begin(bucket, !damaged.is_empty(), may_begin).await?;
        // Segments are deleted only when there are snapshots. This process can have been suspended
        // until another one had stored some, and had deleted the first segment: then it has put or
        // read an object that is in no log, or has missed the one that is.
        if damaged.is_empty() && !bucket.list(&bucket.snapshots()).await?.is_empty() {
            continue;
        }
        let Some(mut opened) = begun else {
            return Err(Failure::new(
                StoreErrorKind::Corrupt,
                format!(
                    "{}: the log does not begin with its first segment, and no snapshot can be \
                     read ({} are damaged); were objects deleted? Restore them from a backup, or \
                     use another prefix",
                    bucket.describe(),
                    damaged.len()
                ),
            ));
        };
        if let Some(newest) = damaged.last() {
            opened.view.require(*newest);
        }
        return Ok(opened);
    }
    Err(too_late())
}

/// Returns the name of the snapshot that the manifest names.
async fn newest_name(bucket: &Bucket) -> Result<Option<Path>> {
    let Some(found) = bucket.get(&bucket.manifest()).await? else {
        return Ok(None);
    };
    match document::decode(&found) {
        Ok((_, snapshot)) => Ok(Some(bucket.snapshots().join(snapshot.trim_end()))),
        Err(failure) if failure.kind != StoreErrorKind::Corrupt => Err(failure),
        Err(failure) => {
            tracing::warn!(
                ?failure,
                "the manifest cannot be read; listing the snapshots"
            );
            Ok(None)
        }
    }
}

/// Returns the number of the last segment in the newest snapshot; 0 if there is none.
pub(crate) async fn newest_number(bucket: &Bucket) -> Result<u64> {
    let snapshots = bucket.list(&bucket.snapshots()).await?;
    let numbers = snapshots
        .iter()
        .filter_map(|snapshot| Bucket::number(&snapshot.location));
    Ok(numbers.max().unwrap_or(0))
}

/// Opens the newest snapshot of a segment after `number` that can be read. Returns `None` if there
/// is none.
pub(crate) async fn newer(bucket: &Bucket, number: u64) -> Result<Option<Opened>> {
    match search(bucket, Some(number)).await? {
        Search::Opened(opened) => Ok(Some(*opened)),
        Search::Nothing(_) => Ok(None),
    }
}

/// The result of a search for a snapshot.
enum Search {
    Opened(Box<Opened>),
    /// No snapshot can be read. These are the numbers of those that are damaged, in order.
    Nothing(Vec<u64>),
}

/// Opens the newest snapshot that can be read, or the newest one of a segment after this number.
async fn search(bucket: &Bucket, after: Option<u64>) -> Result<Search> {
    for _ in 0..LISTS {
        let mut damaged = Vec::new();
        let mut is_missing = false;
        for snapshot in bucket.list(&bucket.snapshots()).await?.iter().rev() {
            let Some(number) = Bucket::number(&snapshot.location) else {
                continue;
            };
            if after.is_some_and(|after| number <= after) {
                break;
            }
            match load(bucket, &snapshot.location).await? {
                Loaded::Opened(mut opened) => {
                    // The log must contain what the damaged ones contain.
                    opened.view.require(damaged.last().copied().unwrap_or(0));
                    return Ok(Search::Opened(opened));
                }
                Loaded::Damaged => damaged.insert(0, number),
                Loaded::Missing => is_missing = true,
            }
        }
        if !is_missing {
            return Ok(Search::Nothing(damaged));
        }
        // Some were deleted since the list was read, so there are newer ones.
    }
    Err(too_late())
}

fn too_late() -> Failure {
    Failure::new(
        StoreErrorKind::Unavailable,
        "snapshots are deleted before this process can read them; increase the retention",
    )
}

/// What became of the attempt to load a snapshot.
pub(crate) enum Loaded {
    Opened(Box<Opened>),
    Damaged,
    Missing,
}

/// Loads a snapshot.
pub(crate) async fn load(bucket: &Bucket, name: &Path) -> Result<Loaded> {
    let Some(found) = bucket.get(name).await? else {
        return Ok(Loaded::Missing);
    };
    // The data of many jobs takes long to decode.
    let decoded = tokio::task::spawn_blocking(move || {
        let (header, body) = document::decode(&found)?;
        let data = Snapshot::decode(body).map_err(|error| {
            let problem = format!("contains data that cannot be decoded: {error}");
            Failure::undecodable(found.name.as_ref(), &problem)
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

/// Opens a log from its first segment. Puts this segment if the bucket contains no log. Returns
/// `None` if the log lacks it.
async fn begin(bucket: &Bucket, has_snapshots: bool, may_begin: bool) -> Result<Option<Opened>> {
    let first = |header: &Header| Opened {
        data: Snapshot::default(),
        view: View::new(header),
    };
    let name = bucket.segment(0);
    let read = async || match bucket.get(&name).await? {
        Some(found) => Ok(Some(first(&document::decode(&found)?.0))),
        None => Ok(None),
    };
    if let Some(opened) = read().await? {
        return Ok(Some(opened));
    }
    if has_snapshots || !bucket.list(&bucket.segments()).await?.is_empty() {
        // Another process can have begun the log since the first look.
        return read().await;
    }
    if !may_begin {
        return Err(Failure::new(
            StoreErrorKind::SchemaMismatch(SchemaProblem::NoFile),
            format!(
                "{}: there is no log, and `migrate` is off",
                bucket.describe()
            ),
        ));
    }
    let created = bucket::repeated(|| async {
        let header = Header::new(0, Uuid::new_v4(), 0);
        let created = bucket.create(&name, document::encode(&header, [])?);
        match created.await? {
            Created::Created => Ok(first(&header)),
            Created::Taken => read().await?.ok_or_else(Failure::conflict),
        }
    });
    created.await.map(Some)
}
