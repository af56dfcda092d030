//! Tests with requests that fail, processes that are behind, and objects that are damaged.

mod faulty;
mod objects;
mod races;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use ratchet_core::memory::ManualClock;
use ratchet_core::model::{ClaimRequest, ClaimedJob, Detail, Enqueued, NewJob};
use ratchet_core::store::{Checked, JobStore};
use ratchet_core::{JobId, Name, NodeId, time};

use crate::{Builder, ObjectStore};
use faulty::Faulty;

type Opened = Checked<ObjectStore>;

fn clock() -> ManualClock {
    ManualClock::new(time::from_millis(1_790_000_000_123))
}

/// A store that never deletes anything, and stores no snapshots.
fn builder(bucket: &Faulty) -> Builder {
    ObjectStore::on(Arc::new(bucket.clone()), "r")
        .manual_clock(clock())
        .snapshot_every(u32::MAX)
}

async fn open(bucket: &Faulty) -> Opened {
    builder(bucket).connect().await.unwrap()
}

/// A store that stores a snapshot after every second segment, and deletes at once what it replaces.
async fn open_hasty(bucket: &Faulty) -> Opened {
    let builder = builder(bucket).snapshot_every(2).retention(Duration::ZERO);
    builder.connect().await.unwrap()
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

/// Returns whether the store has each of these jobs.
async fn has_all(store: &Opened, jobs: &[JobId]) -> bool {
    let found = store.get(jobs, Detail::Whole).await.unwrap();
    found.iter().all(Option::is_some)
}

/// Waits until the store is not storing a snapshot.
async fn snapshot_stored(store: &Opened) {
    while store
        .log
        .is_storing
        .load(std::sync::atomic::Ordering::SeqCst)
    {
        tokio::task::yield_now().await;
    }
}

/// The data of a store that is current.
async fn data(store: &Opened) -> String {
    store.log.refresh().await.unwrap();
    store.log.data().encode().unwrap()
}
