//! Tests with requests that fail, processes that are behind, and objects that are damaged.

mod faulty;
mod objects;
mod races;
mod requests;
mod suspended;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore as _;
use object_store::path::Path;
use ratchet_core::model::{ClaimRequest, ClaimedJob, Detail, Enqueued, NewJob};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobId, Name, NodeId};

use crate::{Builder, ObjectStore};
use faulty::Faulty;

type Opened = Checked<ObjectStore>;

/// A store that never deletes anything, and stores no snapshots.
fn builder(bucket: &Faulty) -> Builder {
    ObjectStore::on(Arc::new(bucket.clone()), "r")
        .manual_clock(bucket.clock().clone())
        .request_life(Duration::from_secs(15 * 60))
        .snapshot_every(u32::MAX)
}

async fn open(bucket: &Faulty) -> Opened {
    builder(bucket).connect().await.unwrap()
}

/// A store that stores a snapshot after every second segment, and deletes segments after an hour.
async fn open_brisk(bucket: &Faulty) -> Opened {
    builder(bucket).snapshot_every(2).connect().await.unwrap()
}

/// Adds jobs, one every twenty minutes, until this segment is deleted. Returns the jobs.
async fn bury(bucket: &Faulty, store: &Opened, number: u64) -> Vec<JobId> {
    let mut jobs = Vec::new();
    for _ in 0..100 {
        bucket.clock().advance(Duration::from_secs(20 * 60));
        jobs.push(add(store).await);
        store.log.snapshots.stored().await;
        if !bucket.has(&segment(number)).await {
            return jobs;
        }
    }
    panic!("segment {number} is not deleted");
}

fn name(text: &str) -> Name {
    Name::new("name", text).unwrap()
}

fn segment(number: u64) -> Path {
    Path::from(format!("r/log/{number:020}"))
}

/// Enqueues one job, which must be new.
async fn add(store: &Opened) -> JobId {
    let job = NewJob::new("kind", &());
    let answers = store.enqueue(&[job]).await.unwrap();
    assert!(matches!(answers[0], Enqueued::Created(_)), "{answers:?}");
    answers[0].id()
}

async fn claim(store: &Opened) -> Vec<ClaimedJob> {
    let request = ClaimRequest::new(NodeId::new(), 10);
    store.claim_next_batch(&request).await.unwrap()
}

async fn names(bucket: &Faulty, below: &str) -> Vec<Path> {
    let objects = bucket.objects().list(Some(&Path::from(below)));
    let objects: Vec<_> = futures_util::TryStreamExt::try_collect(objects)
        .await
        .unwrap();
    objects
        .into_iter()
        .map(|object: object_store::ObjectMeta| object.location)
        .collect()
}

async fn snapshots(bucket: &Faulty) -> Vec<Path> {
    names(bucket, "r/snapshots").await
}

/// Returns whether the store has each of these jobs.
async fn has_all(store: &Opened, jobs: &[JobId]) -> bool {
    let found = store.get(jobs, Detail::Whole).await.unwrap();
    found.iter().all(Option::is_some)
}

/// The data of a store that is current.
async fn data(store: &Opened) -> String {
    store.log.refresh().await.unwrap();
    store.log.data().unwrap().encode().unwrap()
}
