//! Bulk actions, which change many jobs in several passes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::{ClaimRequest, Detail, JobFilter, Outcome, RunAt, Settlement};
use ratchet_core::store::JobStore;
use ratchet_core::time::monotonic;
use ratchet_core::{
    Client, JobAction, JobId, JobState, MemoryStore, Name, NewJob, NodeId, Priority, Ratchet,
};

use crate::kit::{Started, World};

/// Returns a client and a counter of the client's `act` calls. `plan` returns the fault of each
/// `act` call, by the number of the call from 0 on.
fn client(
    store: &MemoryStore,
    plan: impl Fn(usize) -> Fault + Send + Sync + 'static,
) -> (Client, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let store = store.clone().with_faults({
        let calls = Arc::clone(&calls);
        move |operation| match operation {
            "act" => plan(calls.fetch_add(1, Ordering::SeqCst)),
            _ => Fault::None,
        }
    });
    (Ratchet::client(Arc::new(store)), calls)
}

async fn jobs(store: &MemoryStore, count: usize) -> Vec<JobId> {
    let jobs: Vec<NewJob> = (0..count)
        .map(|number| NewJob::new("kind", &number))
        .collect();
    let answers = store.enqueue(&jobs).await.unwrap();
    answers
        .into_iter()
        .map(ratchet_core::Enqueued::id)
        .collect()
}

async fn count(store: &MemoryStore, state: JobState) -> u64 {
    let counts = store.count_jobs(&JobFilter::all()).await.unwrap();
    counts.get(&state).copied().unwrap_or_default()
}

async fn claim(store: &MemoryStore, limit: usize) -> Vec<Settlement> {
    let request = ClaimRequest::new(NodeId::new(), limit);
    let claimed = store.claim_next_batch(&request).await.unwrap();
    let fail = |token| {
        let error = "it failed".to_owned();
        Settlement::new(token, Outcome::Failed { error })
    };
    claimed.iter().map(|job| fail(job.claim.token)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_job_that_matches_is_taken_on_once() {
    let store = MemoryStore::new();
    jobs(&store, 10).await;
    claim(&store, 3).await;
    let (client, calls) = client(&store, |_| Fault::None);
    let mut bulk = client
        .bulk(JobFilter::all(), JobAction::Cancel, u64::MAX)
        .pass(4);
    let counts = bulk.run().await.unwrap();
    // The running jobs still match the filter, because only their cancellation was requested. The
    // bulk action nevertheless acts on each of them once.
    assert_eq!((counts.changed, counts.cancel_requested), (7, 3));
    assert!(bulk.is_complete());
    assert_eq!(
        calls.load(Ordering::SeqCst),
        3,
        "expected three passes for the ten jobs"
    );
    assert_eq!(count(&store, JobState::Cancelled).await, 7);
    assert_eq!(
        bulk.run().await.unwrap(),
        counts,
        "expected the same counts, because the action is \
         complete"
    );
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_never_exceeded() {
    let store = MemoryStore::new();
    jobs(&store, 10).await;
    let (client, _) = client(&store, |_| Fault::None);
    for (limit, paused) in [(0, 0), (7, 7), (2, 9)] {
        let mut bulk = client
            .bulk(JobFilter::all(), JobAction::Pause, limit)
            .pass(5);
        assert_eq!(bulk.run().await.unwrap().total(), limit);
        assert!(!bulk.is_complete());
        assert_eq!(count(&store, JobState::Paused).await, paused);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_pass_ends_a_run_and_the_next_run_goes_on() {
    let store = MemoryStore::new();
    let all = jobs(&store, 9).await;
    let (client, _) = client(&store, |call| match call {
        1 => Fault::ErrorBeforeCommit,
        3 => Fault::ErrorAfterCommit,
        _ => Fault::None,
    });
    let action = JobAction::SetPriority(Priority::High);
    let mut bulk = client.bulk(JobFilter::all(), action, 100).pass(3);
    bulk.run().await.unwrap_err();
    assert_eq!(bulk.counts().changed, 3);
    bulk.run().await.unwrap_err();
    assert_eq!(bulk.counts().changed, 6);
    assert!(!bulk.is_complete());
    // The third run first repeats the pass whose answer was lost. The jobs of that pass already
    // have the new priority.
    assert_eq!(bulk.run().await.unwrap().changed, 9);
    let stored = store.get(&all, Detail::Whole).await.unwrap();
    let high = |job: &ratchet_core::JobRecord| job.spec.priority == Priority::High;
    assert!(stored.iter().flatten().all(high));
}

#[tokio::test(start_paused = true)]
async fn what_was_done_stays_done_when_a_run_is_dropped() {
    let store = MemoryStore::new();
    jobs(&store, 9).await;
    let (client, _) = client(&store, |call| match call {
        2 => Fault::DelayedAnswer(Duration::from_secs(5)),
        _ => Fault::None,
    });
    let mut bulk = client
        .bulk(JobFilter::all(), JobAction::Cancel, 100)
        .pass(3);
    let dropped = tokio::time::timeout(Duration::from_secs(1), bulk.run()).await;
    assert!(dropped.is_err());
    assert_eq!(bulk.counts().changed, 6);
    assert_eq!(count(&store, JobState::Cancelled).await, 9);
    assert_eq!(
        bulk.run().await.unwrap().changed,
        6,
        "expected the counts of all passes, also of the one whose report was dropped"
    );
    assert!(bulk.is_complete());
}

#[tokio::test(start_paused = true)]
async fn a_bounded_run_begins_no_pass_after_its_time_and_can_be_continued() {
    let store = MemoryStore::new();
    jobs(&store, 9).await;
    let (client, calls) = client(&store, |_| Fault::DelayedAnswer(Duration::from_secs(1)));
    let mut bulk = client
        .bulk(JobFilter::all(), JobAction::Cancel, 100)
        .pass(2);
    let some = bulk.run_for(Duration::from_millis(1_500)).await.unwrap();
    assert_eq!((some.changed, bulk.is_complete()), (4, false));
    // A new bulk action continues after the last job of the first one, as a bulk action in another
    // process would.
    let rest = |_| Fault::None;
    let place = bulk.reached();
    assert!(place.is_some());
    let mut other = self::client(&store, rest)
        .0
        .bulk(JobFilter::all(), JobAction::SetPriority(Priority::High), 1)
        .after(place);
    other.run().await.unwrap();
    assert!(other.reached() > place);
    // However short the time is, the action makes progress.
    let one_more = bulk.run_for(Duration::ZERO).await.unwrap();
    assert_eq!((one_more.changed, bulk.is_complete()), (6, false));
    let rest = bulk.run_for(Duration::MAX).await.unwrap();
    assert_eq!((rest.changed, bulk.is_complete()), (9, true));
    let made = calls.load(Ordering::SeqCst);
    bulk.run_for(Duration::MAX).await.unwrap();
    assert_eq!(
        calls.load(Ordering::SeqCst),
        made,
        "expected no further call, because the action \
         is complete"
    );
}

#[tokio::test(start_paused = true)]
async fn who_goes_on_until_it_is_over_stops_at_the_limit() {
    let store = MemoryStore::new();
    let jobs: Vec<NewJob> = (0..5).map(|n| NewJob::new("kind", &n)).collect();
    store.enqueue(&jobs).await.unwrap();
    let (client, _) = client(&store, |_| Fault::None);
    let mut bulk = client.bulk(JobFilter::all(), JobAction::Cancel, 4).pass(3);
    let mut calls = 0;
    while !bulk.is_over() {
        bulk.run_for(Duration::ZERO).await.unwrap();
        calls += 1;
    }
    let (changed, complete) = (bulk.counts().changed, bulk.is_complete());
    assert_eq!((calls, changed, complete), (2, 4, false));
}

#[tokio::test(start_paused = true)]
async fn a_taken_key_is_counted_and_does_not_hold_the_others_up() {
    let store = MemoryStore::new();
    let dead = [
        NewJob::new("kind", &1).unique_key("u"),
        NewJob::new("kind", &2),
    ];
    store.enqueue(&dead).await.unwrap();
    store.settle(&claim(&store, 2).await).await.unwrap();
    let holder = NewJob::new("kind", &3).unique_key("u");
    store.enqueue(&[holder]).await.unwrap();
    let (client, _) = client(&store, |_| Fault::None);
    let filter = JobFilter::all().state(JobState::Failed);
    let mut bulk = client.bulk(filter, JobAction::Requeue, 100).pass(1);
    let counts = bulk.run().await.unwrap();
    assert_eq!((counts.changed, counts.key_taken), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn only_what_matches_is_touched() {
    let store = MemoryStore::new();
    let tagged = NewJob::new("kind", &1).tag("t");
    store
        .enqueue(&[tagged.clone(), NewJob::new("kind", &2)])
        .await
        .unwrap();
    let (client, _) = client(&store, |_| Fault::None);
    let filter = JobFilter::all().tag(Name::new("tag", "t").unwrap());
    let cancel = client
        .bulk(filter.clone(), JobAction::Cancel, 100)
        .run()
        .await;
    assert_eq!(cancel.unwrap().changed, 1);
    let counted = client.count(&filter).await.unwrap();
    assert_eq!(counted, [(JobState::Cancelled, 1)].into());
    let delete = client.bulk(filter, JobAction::Delete, 100).run().await;
    assert_eq!(delete.unwrap().changed, 1);
    assert_eq!(client.job(tagged.id()).await.unwrap(), None);
    assert_eq!(count(&store, JobState::Pending).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_rescheduled_to_now_is_begun_at_once() {
    let world = World::new();
    let begun = Arc::new(Mutex::new(None));
    let job = world.job("noted", {
        let begun = Arc::clone(&begun);
        move |_| {
            *begun.lock().unwrap() = Some(monotonic());
            async { Ok(()) }
        }
    });
    let id = world.enqueue(job.delay(Duration::from_secs(3_600))).await;
    let slow = Duration::from_secs(600);
    let builder = world.builder().poll_interval(slow, slow);
    let node = Started::new(builder.build().unwrap());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let from = monotonic();
    let client = node.node.client();
    client.reschedule(id, RunAt::Now).await.unwrap();
    world.ended(id).await;
    let begun = begun.lock().unwrap().unwrap();
    assert!(begun - from < Duration::from_secs(1), "{:?}", begun - from);
    node.stop().await.unwrap();
}
