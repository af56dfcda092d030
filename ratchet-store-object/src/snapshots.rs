//! Stores snapshots, and deletes what they replace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use object_store::ObjectMeta;
use ratchet_core::memory::Snapshot;
use ratchet_core::{StoreErrorKind, time};

use crate::bucket::Bucket;
use crate::document::{self, Header};
use crate::error::{Failure, Result};
use crate::log::Log;
use crate::view::View;

/// How many snapshots are kept however old they are. If the newest one is damaged, the one before
/// it and the segments after that one still give the same data.
const KEPT: usize = 2;

impl Log {
    /// Begins to store a snapshot of the data, which is that of this view. Does nothing if this
    /// process is still storing the one before it.
    pub(crate) fn begin_snapshot(&self, view: &View) {
        if self.is_storing.swap(true, Ordering::SeqCst) {
            return;
        }
        let storing = Storing(Arc::clone(&self.is_storing));
        let data = self.data().clone();
        let header = Header::new(view.number, view.id, view.at);
        let (bucket, retention) = (self.bucket.clone(), self.retention);
        tokio::spawn(async move {
            let stored = async {
                store(&bucket, data, &header).await?;
                clean(&bucket, retention).await
            };
            if let Err(failure) = stored.await {
                // The next snapshot tries again.
                tracing::warn!(
                    ?failure,
                    "could not store a snapshot or delete old segments"
                );
            }
            drop(storing);
        });
    }
}

/// Notes that a snapshot is no longer being stored.
struct Storing(Arc<AtomicBool>);

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Stores a snapshot, and lets the manifest name it.
pub(crate) async fn store(bucket: &Bucket, data: Snapshot, header: &Header) -> Result<()> {
    let of_snapshot = header.clone();
    let encoded = tokio::task::spawn_blocking(move || {
        let data = data
            .encode()
            .map_err(|error| Failure::corrupt("snapshot", &error.to_string()))?;
        document::encode(&of_snapshot, [&*data])
    });
    let object = match encoded.await {
        Ok(encoded) => encoded?,
        Err(error) => return Err(Failure::new(StoreErrorKind::Other, error.to_string())),
    };
    let name = bucket.new_snapshot(header.number);
    bucket.put(&name, object).await?;
    let file = name.filename().unwrap_or_default();
    let manifest = document::encode(header, [file])?;
    bucket.put(&bucket.manifest(), manifest).await
}

/// Deletes the snapshots, segments and probes that are older than `retention` and that no process
/// needs any more. Ages are differences between times of the server.
///
/// Segments are deleted one after the other in the order of their numbers. So a process that still
/// finds the segment of its view knows that no later one was deleted.
pub(crate) async fn clean(bucket: &Bucket, retention: Duration) -> Result<()> {
    let snapshots = bucket.list(&bucket.snapshots()).await?;
    let put_at = |object: &ObjectMeta| time::to_millis(object.last_modified);
    let Some(now) = snapshots.iter().map(put_at).max() else {
        return Ok(());
    };
    let is_old = |object: &ObjectMeta| {
        now.saturating_sub(put_at(object)) >= time::duration_millis(retention)
    };
    let (others, newest) = snapshots.split_at(snapshots.len().saturating_sub(KEPT));
    let (old, young): (Vec<_>, Vec<_>) = others.iter().partition(|snapshot| is_old(snapshot));
    let kept = young.into_iter().chain(newest);
    let floor = kept.filter_map(|kept| Bucket::number(&kept.location)).min();
    let Some(floor) = floor else {
        return Ok(());
    };
    for snapshot in old {
        bucket.delete(&snapshot.location).await?;
    }
    for segment in bucket.list(&bucket.segments()).await? {
        let is_needed = Bucket::number(&segment.location).is_none_or(|number| number >= floor);
        if is_needed || !is_old(&segment) {
            break;
        }
        bucket.delete(&segment.location).await?;
    }
    for probe in bucket.list(&bucket.probes()).await? {
        if is_old(&probe) {
            bucket.delete(&probe.location).await?;
        }
    }
    Ok(())
}
