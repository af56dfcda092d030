//! Stores snapshots, and deletes what they replace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::ObjectMeta;
use ratchet_core::memory::Snapshot;
use ratchet_core::{StoreErrorKind, time};
use tokio::sync::watch;

use crate::bucket::Bucket;
use crate::document::{self, Header};
use crate::error::{Failure, Result};
use crate::log::Log;
use crate::open;
use crate::view::View;

/// How many snapshots are kept however old they are. If the newest one is damaged, the one before
/// it and the segments after that one still give the same data.
const KEPT: usize = 2;

/// What this process knows about snapshots.
pub(crate) struct Snapshots {
    /// Whether this process is storing one.
    is_storing: watch::Sender<bool>,
    /// The number of the last segment in the newest snapshot that this process knows.
    newest: Arc<AtomicU64>,
}

impl Snapshots {
    pub(crate) fn new(newest: u64) -> Self {
        Self {
            is_storing: watch::Sender::new(false),
            newest: Arc::new(AtomicU64::new(newest)),
        }
    }

    /// Waits until this process is not storing a snapshot.
    pub(crate) async fn stored(&self) {
        let mut storing = self.is_storing.subscribe();
        // The sender exists as long as this value.
        let _ = storing.wait_for(|storing| !storing).await;
    }
}

impl Log {
    /// Begins a snapshot after every segment whose number is a multiple of `snapshot_every`. So one
    /// process stores it. If it does not live long enough, another process stores one a little
    /// later.
    pub(crate) async fn tend_snapshots(&self, view: &View) {
        let every = self.snapshot_every;
        if view.number.is_multiple_of(every) {
            return self.begin_snapshot(view);
        }
        let newest = self.snapshots.newest.load(Ordering::SeqCst);
        if view.number < newest.saturating_add(every).saturating_add(every / 8 + 1) {
            return;
        }
        match open::newest_number(&self.bucket).await {
            Ok(newest) => {
                self.snapshots.newest.fetch_max(newest, Ordering::SeqCst);
                if view.number >= newest.saturating_add(every) {
                    self.begin_snapshot(view);
                }
            }
            Err(failure) => tracing::debug!(?failure, "could not read the manifest"),
        }
    }

    /// Begins to store a snapshot of the data, which is that of this view. Does nothing if this
    /// process is still storing the one before it.
    fn begin_snapshot(&self, view: &View) {
        // A panic has left half of a segment in the data: see `Log::data`.
        let Ok(data) = self.data() else {
            return;
        };
        if self.snapshots.is_storing.send_replace(true) {
            return;
        }
        let storing = Storing(self.snapshots.is_storing.clone());
        let data = data.clone();
        let header = Header::new(view.number, view.id, view.at);
        let newest = Arc::clone(&self.snapshots.newest);
        let (bucket, retention) = (self.bucket.clone(), self.retention);
        tokio::spawn(async move {
            let stored = async {
                store(&bucket, data, &header).await?;
                newest.fetch_max(header.number, Ordering::SeqCst);
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
struct Storing(watch::Sender<bool>);

impl Drop for Storing {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

/// Stores a snapshot, and lets the manifest name it.
pub(crate) async fn store(bucket: &Bucket, data: Snapshot, header: &Header) -> Result<()> {
    let of_snapshot = header.clone();
    let encoded = tokio::task::spawn_blocking(move || {
        let data = data
            .encode()
            .map_err(|error| Failure::unencodable("the data", &error))?;
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
        let Some(number) = Bucket::number(&segment.location) else {
            tracing::warn!(name = %segment.location, "an object in the log is no segment");
            continue;
        };
        if number >= floor || !is_old(&segment) {
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
