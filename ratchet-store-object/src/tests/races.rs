//! Races between processes, and puts whose outcome is unknown.

use object_store::{ObjectStore as _, ObjectStoreExt};
use ratchet_core::model::{Guarded, PutRecurring, Recurring};
use ratchet_core::store::{RecurringStore, VersionStore};
use ratchet_core::{StoreErrorKind, time};
use tokio::sync::{Barrier, Notify};

use super::faulty::{Fault, Gate, Operation};
use super::*;

#[tokio::test(start_paused = true)]
async fn a_put_whose_answer_is_lost_counts_once() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    bucket.plan([Fault::LoseAnswer]);
    let jobs = [add(&store).await, add(&store).await];
    bucket.plan([Fault::LoseAnswer]);
    let claimed: Vec<JobId> = claim(&store)
        .await
        .iter()
        .map(|job| job.claim.token.job)
        .collect();
    assert_eq!(claimed, jobs);
    bucket.plan([Fault::LoseAnswer]);
    let first = store.bump(&name("space"), None).await.unwrap();
    let versions = store.versions(&[name("space")]).await.unwrap();
    assert_eq!(first, Guarded::Done(versions[0]));
    let other = open(&bucket.other()).await;
    assert_eq!(data(&other).await, data(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_comes_late_counts_once() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    // The first put arrives after the second put of the same segment.
    let arrives = Arc::new(Notify::new());
    bucket.plan([Fault::Late(Arc::clone(&arrives))]);
    let first = add(&store).await;
    arrives.notify_one();
    let second = add(&store).await;
    assert!(has_all(&store, &[first, second]).await);

    // The first put arrives before the second put of the same segment.
    let (arrives, meets) = (Arc::new(Notify::new()), Arc::new(Barrier::new(2)));
    bucket.plan([
        Fault::Late(Arc::clone(&arrives)),
        Fault::Meet(Arc::clone(&meets)),
    ]);
    bucket.plan_at(Operation::Get, segment(3).as_ref(), Fault::Throttle);
    let arrive = async {
        arrives.notify_one();
        // The task of the first put runs before the second put continues.
        while bucket.objects().head(&segment(3)).await.is_err() {
            tokio::task::yield_now().await;
        }
        meets.wait().await;
    };
    let (third, ()) = futures_util::future::join(add(&store), arrive).await;
    let other = open(&bucket.other()).await;
    assert!(has_all(&other, &[first, second, third]).await);
    assert_eq!(data(&other).await, data(&store).await);
}

/// The caller of the first put has gone when it arrives. Its segment then has the number of the
/// next put.
#[tokio::test(start_paused = true)]
async fn a_put_that_was_given_up_and_comes_late_is_no_loss() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    let (arrives, meets) = (Arc::new(Notify::new()), Arc::new(Barrier::new(2)));
    let mut faults = vec![Fault::Late(Arc::clone(&arrives))];
    faults.extend((0..100).map(|_| Fault::Throttle));
    bucket.plan(faults);
    let given_up = NewJob::new("kind", &());
    let jobs = [given_up.clone()];
    let failed = store.enqueue(&jobs).await.unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Timeout);
    bucket.end();
    bucket.plan([Fault::Meet(Arc::clone(&meets))]);
    let arrive = async {
        arrives.notify_one();
        while bucket.objects().head(&segment(1)).await.is_err() {
            tokio::task::yield_now().await;
        }
        meets.wait().await;
    };
    let (job, ()) = futures_util::future::join(add(&store), arrive).await;
    assert!(has_all(&store, &[given_up.id(), job]).await);
    let other = open(&bucket.other()).await;
    assert_eq!(data(&other).await, data(&store).await);
}

/// A client that repeats a put can get a conflict with its own earlier request.
#[tokio::test(start_paused = true)]
async fn a_put_that_conflicts_with_its_own_earlier_request_counts_once() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    add(&store).await;
    let (arrives, meets) = (Arc::new(Notify::new()), Arc::new(Barrier::new(2)));
    bucket.plan([
        Fault::Conflict(Arc::clone(&arrives)),
        Fault::Meet(Arc::clone(&meets)),
    ]);
    let arrive = async {
        // The second put of the segment waits for the first.
        tokio::time::sleep(Duration::from_secs(1)).await;
        arrives.notify_one();
        while bucket.objects().head(&segment(2)).await.is_err() {
            tokio::task::yield_now().await;
        }
        meets.wait().await;
    };
    let space = name("space");
    let bump = store.bump(&space, None);
    let (bumped, ()) = futures_util::future::join(bump, arrive).await;
    let versions = store.versions(&[name("space")]).await.unwrap();
    assert_eq!(bumped.unwrap(), Guarded::Done(versions[0]));
    let segments = bucket.objects().list(Some(&Path::from("r/log")));
    let segments: Vec<_> = futures_util::StreamExt::collect(segments).await;
    assert_eq!(segments.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_put_is_repeated() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    bucket.plan([Fault::Throttle, Fault::Throttle, Fault::Throttle]);
    let job = add(&store).await;
    assert!(has_all(&store, &[job]).await);
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_denied_fails_at_once_and_changes_nothing() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    let before = data(&store).await;
    bucket.plan([Fault::Deny]);
    let denied = store
        .enqueue(&[NewJob::new("kind", &())])
        .await
        .unwrap_err();
    assert_eq!(denied.kind(), StoreErrorKind::Misconfigured, "{denied}");
    assert_eq!(data(&store).await, before);
    add(&store).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_the_same_view_one_puts_first() {
    let bucket = Faulty::default();
    let other = bucket.other();
    let stores = [open(&bucket).await, open(&other).await];
    for _ in 0..5 {
        let meets = Arc::new(Barrier::new(2));
        bucket.plan([Fault::Meet(Arc::clone(&meets))]);
        other.plan([Fault::Meet(meets)]);
        let added = futures_util::future::join(add(&stores[0]), add(&stores[1])).await;
        for store in &stores {
            assert!(has_all(store, &[added.0, added.1]).await);
        }
    }
    assert_eq!(data(&stores[0]).await, data(&stores[1]).await);

    // Each of the ten jobs is claimed once.
    let meets = Arc::new(Barrier::new(2));
    bucket.plan([Fault::Meet(Arc::clone(&meets))]);
    other.plan([Fault::Meet(meets)]);
    let (one, two) = futures_util::future::join(claim(&stores[0]), claim(&stores[1])).await;
    assert_eq!(one.len() + two.len(), 10);
    assert_eq!(data(&stores[0]).await, data(&stores[1]).await);
}

/// The slots of a definition depend on the time of its command, which a lost race changes.
#[tokio::test(start_paused = true)]
async fn a_definition_has_the_slots_of_its_time_also_after_a_lost_race() {
    let bucket = Faulty::default();
    let time = bucket.clock();
    let store = open(&bucket).await;
    let other = open(&bucket.other()).await;
    let held = Gate::default();
    bucket.plan([Fault::Hold(held.clone())]);
    let recurring = Recurring::every(Duration::from_secs(60)).named("every");
    let put = PutRecurring::new(recurring.job(NewJob::new("tick", &())).check().unwrap());
    let overtake = async {
        add(&other).await;
        time.advance(Duration::from_secs(3_600));
        held.open();
    };
    let (outcome, ()) = futures_util::future::join(store.put(&put), overtake).await;
    outcome.unwrap();
    let found = store.find(&name("every")).await.unwrap().unwrap();
    let next = time::to_millis(found.next_fire.unwrap());
    assert!(next > time.now_millis(), "{next}");
    // A pause and its end in one group: each follows data that contains the one before it.
    for paused in [true, false] {
        store.set_paused(&name("every"), paused).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn calls_gather_while_a_put_is_under_way() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    let held = Gate::default();
    bucket.plan([Fault::Hold(held.clone())]);
    let first = add(&store);
    let others = futures_util::future::join_all((0..100).map(|_| add(&store)));
    let release = async {
        held.reached().await;
        held.open();
    };
    let (_, others, ()) = futures_util::future::join3(first, others, release).await;
    assert_eq!(others.len(), 100);
    let log = bucket.objects().list(Some(&Path::from("r/log")));
    let segments: Vec<_> = futures_util::StreamExt::collect(log).await;
    // The one that begins the log, the first group, and at most two that gathered.
    assert!(segments.len() <= 4, "{}", segments.len());
}
