//! Stores snapshots, and deletes what they replace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectMeta;
use object_store::path::Path;
use ratchet_core::memory::Snapshot;
use ratchet_core::{StoreErrorKind, time};
use tokio::sync::watch;

use crate::bucket::{self, Bucket};
use crate::document::{self, Header};
use crate::error::{Failure, Result};
use crate::log::Log;
use crate::open;
use crate::view::View;

/// How many snapshots are kept however old they are. If the newest one is damaged, the one before
/// it and the segments after that one still give the same data.
const KEPT: usize = 2;

/// How long the look for a process that needs a snapshot waits until no calls are served.
const VIEW_AWAITED: Duration = Duration::from_secs(1);

/// What this process knows about snapshots.
pub(crate) struct Snapshots {
    storing: Busy,
    cleaning: Busy,
    /// The number of the last segment in the newest snapshot that this process knows.
    newest: AtomicU64,
    /// A snapshot that is missing is not stored before this segment, because an attempt has failed.
    not_before: AtomicU64,
    /// This process knows that no segment before this number exists.
    deleted_to: AtomicU64,
}

impl Snapshots {
    pub(crate) fn new(newest: u64) -> Self {
        Self {
            storing: Busy::new(),
            cleaning: Busy::new(),
            newest: AtomicU64::new(newest),
            not_before: AtomicU64::new(0),
            deleted_to: AtomicU64::new(0),
        }
    }

    /// Waits until this process neither stores a snapshot nor deletes what one replaces.
    pub(crate) async fn stored(&self) {
        self.storing.ended().await;
        self.cleaning.ended().await;
    }
}

/// Whether a task runs, of which there is one at a time.
struct Busy(watch::Sender<bool>);

impl Busy {
    fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Begins the task. Returns `None` if it runs already.
    fn begin(&self) -> Option<Running> {
        (!self.0.send_replace(true)).then(|| Running(self.0.clone()))
    }

    async fn ended(&self) {
        let mut busy = self.0.subscribe();
        // The sender exists as long as this value.
        let _ = busy.wait_for(|busy| !busy).await;
    }
}

/// A task that runs. Dropping it ends the task.
struct Running(watch::Sender<bool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl Log {
    /// Begins a snapshot after every segment whose number is a multiple of `snapshot_every`. So one
    /// process stores it. If it does not live long enough, or fails, another process or this one
    /// stores one a little later.
    pub(crate) async fn tend_snapshots(&self, view: &View) {
        let every = self.snapshot_every;
        let tolerance = every / 8 + 1;
        if view.number.is_multiple_of(every) {
            return self.begin_snapshot(view);
        }
        let newest = self.snapshots.newest.load(Ordering::SeqCst);
        let due = newest.saturating_add(every).saturating_add(tolerance);
        if view.number < due.max(self.snapshots.not_before.load(Ordering::SeqCst)) {
            return;
        }
        let not_before = view.number.saturating_add(tolerance);
        self.snapshots
            .not_before
            .store(not_before, Ordering::SeqCst);
        self.store_if_missing(view, view.number.saturating_sub(every) + 1)
            .await;
    }

    /// Stores a snapshot if another process waits for one. Returns false if the caller should try
    /// again soon.
    pub(crate) async fn give_snapshot(&self) -> bool {
        let wanted = match self.bucket.get_once(&self.bucket.wanted()).await {
            Ok(Some(found)) => document::decode(&found).map_or(0, |(header, _)| header.number),
            Ok(None) => 0,
            Err(_) => return false,
        };
        if self.snapshots.newest.load(Ordering::SeqCst) >= wanted {
            return true;
        }
        // The view is locked while calls are served. Do not wait for it for long.
        let Ok(view) = tokio::time::timeout(VIEW_AWAITED, self.view.lock()).await else {
            return false;
        };
        if view.number >= wanted {
            self.store_if_missing(&view, wanted).await;
        }
        true
    }

    /// Asks the other processes for a snapshot that contains this segment, which this process
    /// cannot read.
    pub(crate) async fn ask_for_snapshot(&self, number: u64) {
        let header = Header::new(number, uuid::Uuid::new_v4(), 0);
        let asked = async {
            self.bucket
                .put(&self.bucket.wanted(), document::encode(&header, [])?)
                .await
        };
        if let Err(failure) = asked.await {
            tracing::debug!(?failure, "could not ask for a snapshot");
        }
    }

    /// Begins a snapshot if there is none that contains the segment with this number.
    async fn store_if_missing(&self, view: &View, number: u64) {
        match open::newest_number(&self.bucket).await {
            Ok(newest) => {
                self.snapshots.newest.fetch_max(newest, Ordering::SeqCst);
                if newest < number {
                    self.begin_snapshot(view);
                }
            }
            Err(failure) => tracing::debug!(?failure, "could not list the snapshots"),
        }
    }

    /// Begins to store a snapshot of the data, which is that of this view. Does nothing if this
    /// process is still storing the one before it.
    fn begin_snapshot(&self, view: &View) {
        // A panic has left half of a segment in the data: see `Log::data`.
        let Ok(data) = self.data() else {
            return;
        };
        let Some(storing) = self.snapshots.storing.begin() else {
            return;
        };
        let data = data.clone();
        let header = Header::new(view.number, view.id, view.at);
        let snapshots = Arc::clone(&self.snapshots);
        let (bucket, retention) = (self.bucket.clone(), self.retention);
        tokio::spawn(async move {
            match store(&bucket, data, &header).await {
                Ok(name) => {
                    snapshots.newest.fetch_max(header.number, Ordering::SeqCst);
                    if let Err(failure) = name_in_manifest(&bucket, &header, &name).await {
                        tracing::warn!(?failure, "could not name the newest snapshot");
                    }
                    // Deleting may take longer than the time until the next snapshot.
                    if let Some(cleaning) = snapshots.cleaning.begin() {
                        tokio::spawn(async move {
                            if let Err(failure) = clean(&bucket, retention, &snapshots).await {
                                tracing::warn!(?failure, "could not delete old objects");
                            }
                            drop(cleaning);
                        });
                    }
                }
                Err(failure) => {
                    tracing::warn!(?failure, "could not store a snapshot; trying again later");
                }
            }
            drop(storing);
        });
    }
}

/// Stores a snapshot, and reads it again. So no segment is deleted because of a snapshot that
/// cannot be read.
async fn store(bucket: &Bucket, data: Snapshot, header: &Header) -> Result<Path> {
    let object = encode(data, header.clone()).await?;
    let name = bucket.new_snapshot(header.number);
    bucket.put(&name, object).await?;
    let read = open::load(bucket, &name).await;
    if let Ok(open::Loaded::Opened(_)) = read {
        return Ok(name);
    }
    let failure = read.err().unwrap_or_else(|| {
        let problem = "cannot be read after it was stored";
        Failure::corrupt(name.as_ref(), problem)
    });
    // Otherwise other processes would take it for a snapshot.
    let _ = bucket.delete(&name).await;
    Err(failure)
}

async fn encode(data: Snapshot, header: Header) -> Result<Bytes> {
    // The data of many jobs takes long to encode.
    let encoded = tokio::task::spawn_blocking(move || {
        let data = data
            .encode()
            .map_err(|error| Failure::unencodable("the data", &error))?;
        document::encode(&header, [&*data])
    });
    encoded
        .await
        .unwrap_or_else(|error| Err(Failure::new(StoreErrorKind::Other, error.to_string())))
}

/// Lets the manifest name this snapshot.
async fn name_in_manifest(bucket: &Bucket, header: &Header, name: &Path) -> Result<()> {
    let content = document::encode(header, [name.filename().unwrap_or_default()])?;
    let manifest = bucket.manifest();
    bucket::repeated(|| bucket.put(&manifest, content.clone())).await
}

/// Deletes the snapshots, segments and probes that are older than `retention` and that no process
/// needs any more. Ages are differences between times of the server.
///
/// Segments are deleted in any order, but only after a floor above them is stored. So a process can
/// know whether a segment that it does not find was deleted: see [`Bucket::floor`].
async fn clean(bucket: &Bucket, retention: Duration, known: &Snapshots) -> Result<()> {
    let snapshots = bucket.list(&bucket.snapshots()).await?;
    let put_at = |object: &ObjectMeta| time::to_millis(object.last_modified);
    let Some(now) = snapshots.iter().map(put_at).max() else {
        return Ok(());
    };
    let is_old = |object: &ObjectMeta| {
        now.saturating_sub(put_at(object)) >= time::duration_millis(retention)
    };
    let number = |snapshot: &ObjectMeta| Bucket::number(&snapshot.location);
    let (others, newest) = snapshots.split_at(snapshots.len().saturating_sub(KEPT));
    let (old, young): (Vec<_>, Vec<_>) = others.iter().partition(|snapshot| is_old(snapshot));
    let kept = young.into_iter().chain(newest).filter_map(number).min();
    // The segments before a snapshot are older than the snapshot.
    let outdated = snapshots.iter().filter(|snapshot| is_old(snapshot));
    let (Some(kept), Some(outdated)) = (kept, outdated.filter_map(number).max()) else {
        return delete_probes(bucket, is_old).await;
    };
    let floor = kept.min(outdated);
    delete_segments(bucket, floor, known).await?;
    let old = old.iter().map(|snapshot| snapshot.location.clone());
    bucket.delete_all(old.collect()).await?;
    delete_probes(bucket, is_old).await
}

/// Deletes the segments before the one with the number `floor`.
async fn delete_segments(bucket: &Bucket, floor: u64, known: &Snapshots) -> Result<()> {
    let deleted_to = known.deleted_to.load(Ordering::SeqCst);
    if floor <= deleted_to {
        return Ok(());
    }
    let name = bucket.new_floor(floor);
    bucket::repeated(|| bucket.put(&name, Bytes::new())).await?;
    let floors = bucket.list(&bucket.floors()).await?.into_iter();
    let lower = floors.map(|floor| floor.location);
    let lower = lower.filter(|name| Bucket::number(name).is_some_and(|number| number < floor));
    bucket.delete_all(lower.collect()).await?;
    let old = if deleted_to == 0 {
        // Finds also those of a process that was suspended: they are in no log.
        let found = bucket.list(&bucket.segments()).await?;
        let names = found.into_iter().map(|segment| segment.location);
        names
            .filter(|name| match Bucket::number(name) {
                Some(number) => number < floor,
                None => {
                    tracing::warn!(%name, "an object in the log is no segment");
                    false
                }
            })
            .collect()
    } else {
        (deleted_to..floor)
            .map(|number| bucket.segment(number))
            .collect()
    };
    bucket.delete_all(old).await?;
    known.deleted_to.store(floor, Ordering::SeqCst);
    Ok(())
}

async fn delete_probes(bucket: &Bucket, is_old: impl Fn(&ObjectMeta) -> bool) -> Result<()> {
    let probes = bucket.list(&bucket.probes()).await?.into_iter();
    let old = probes.filter(|probe| is_old(probe));
    bucket
        .delete_all(old.map(|probe| probe.location).collect())
        .await
}
