//! Tests of retention: when finished jobs are deleted or archived.

use std::sync::Arc;
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::PageRequest;
use ratchet_core::model::{ArchiveFilter, Detail};
use ratchet_core::store::{JobStore, LockStore, NodeStore, QueueStore, StoreInfo, VersionStore};
use ratchet_core::{Client, JobError, JobId, MemoryStore, Ratchet, Retain, Retention, Store};
use tokio::time::sleep;

use crate::kit::{Scripted, Started, World};

/// The unit of the retention times in these tests. It is much longer than the minute between two
/// maintenance passes.
const AGE: Duration = Duration::from_secs(1_200);

/// Enqueues three jobs: one that will succeed, one that will fail and one that will be cancelled.
/// Returns their ids in this order.
async fn one_of_each(world: &World) -> [JobId; 3] {
    let jobs = [
        world.job("succeeds", |_| async { Ok(()) }),
        world.job("fails", |_| async { Err::<(), _>(JobError::discard("no")) }),
        world.job("is cancelled", |_| async {
            Err::<(), _>(JobError::cancel())
        }),
    ];
    let ids = jobs.each_ref().map(ratchet_core::NewJob::id);
    world.store.enqueue(&jobs).await.unwrap();
    ids
}

async fn stored(world: &World, ids: &[JobId]) -> Vec<bool> {
    let found = world.store.get(ids, Detail::Whole).await.unwrap();
    found.iter().map(Option::is_some).collect()
}

async fn archived(client: &Client) -> Vec<JobId> {
    let archive = client.archive().unwrap();
    let (filter, page) = (ArchiveFilter::all(), PageRequest::first(100));
    let page = archive.list(&filter, &page).await.unwrap();
    page.jobs.iter().map(|one| one.job.id).collect()
}

#[tokio::test(start_paused = true)]
async fn each_way_to_end_has_its_own_retention() {
    let world = World::new();
    let ids = one_of_each(&world).await;
    let retention = Retention::all(Retain::Forever)
        .succeeded(Retain::Delete(AGE))
        .failed(Retain::Archive(2 * AGE))
        .archive(Some(4 * AGE));
    let builder = world.builder().retention(retention);
    let node = Started::new(builder.build().unwrap());
    for id in ids {
        world.ended(id).await;
    }
    let client = node.node.client();
    sleep(AGE / 2).await;
    assert_eq!(stored(&world, &ids).await, [true, true, true]);
    sleep(AGE).await;
    assert_eq!(stored(&world, &ids).await, [false, true, true]);
    assert_eq!(archived(client).await, []);
    sleep(AGE).await;
    assert_eq!(stored(&world, &ids).await, [false, false, true]);
    assert_eq!(archived(client).await, [ids[1]]);
    let found = client
        .archive()
        .unwrap()
        .job(ids[1])
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.job.id, found.history.len()), (ids[1], 1));
    sleep(2 * AGE).await;
    assert_eq!(archived(client).await, []);
    assert_eq!(stored(&world, &ids).await, [false, false, true]);
    let stats = node.node.stats();
    let done = (stats.deleted, stats.archived, stats.deleted_from_archive);
    assert_eq!(done, (1, 1, 1));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_archived_does_not_keep_the_rest() {
    let world = World::new();
    let ids = one_of_each(&world).await;
    let store = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "archive" => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        });
    let retention = Retention::all(Retain::Delete(AGE)).succeeded(Retain::Archive(AGE));
    let builder = world.builder_on(store).retention(retention);
    let node = Started::new(builder.build().unwrap());
    for id in ids {
        world.ended(id).await;
    }
    sleep(2 * AGE).await;
    assert_eq!(stored(&world, &ids).await, [true, false, false]);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_whole_backlog_is_archived_in_bounded_passes() {
    let world = World::new();
    let mut last = None;
    for number in 0..450 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        last = Some(world.enqueue(job).await);
    }
    let retention = Retention::all(Retain::Archive(AGE));
    let node = Started::new(world.builder().retention(retention).build().unwrap());
    world.ended(last.unwrap()).await;
    sleep(AGE + Duration::from_secs(300)).await;
    assert_eq!(node.node.stats().archived, 450);
    node.stop().await.unwrap();
}

/// A store that has no archive.
#[derive(Debug)]
struct Plain(MemoryStore);

impl Store for Plain {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        &self.0
    }

    fn queues(&self) -> &dyn QueueStore {
        &self.0
    }

    fn nodes(&self) -> &dyn NodeStore {
        &self.0
    }

    fn locks(&self) -> &dyn LockStore {
        &self.0
    }

    fn versions(&self) -> &dyn VersionStore {
        &self.0
    }
}

#[tokio::test]
async fn a_store_without_an_archive_is_not_asked_to_archive() {
    let world = World::new();
    let build = |retention| {
        Ratchet::builder(Arc::new(Plain(world.store.clone())))
            .register::<Scripted>()
            .state(world.scripts.clone())
            .retention(retention)
            .build()
    };
    let all = Retention::all;
    for retention in [
        all(Retain::Archive(AGE)),
        all(Retain::Forever).archive(Some(AGE)),
    ] {
        let error = build(retention).unwrap_err();
        assert!(error.to_string().contains("archive"), "{error}");
    }
    assert!(build(all(Retain::Delete(AGE))).is_ok());
    assert!(
        Ratchet::client(Arc::new(Plain(world.store.clone())))
            .archive()
            .is_none()
    );
}
