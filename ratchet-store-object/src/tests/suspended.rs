//! Processes that are suspended between any two lines, until the log has passed them.

use futures_util::future::join;
use object_store::ObjectStoreExt;
use ratchet_core::StoreErrorKind;
use ratchet_core::memory::{Command, ManualClock};
use ratchet_core::model::{Guarded, JobFilter, PageRequest, PauseRequest, PauseScope};
use ratchet_core::store::{QueueStore, VersionStore};

use super::faulty::{Fault, Gate, Operation};
use super::*;
use crate::document::{self, Header};

const MINUTE: Duration = Duration::from_secs(60);

/// Checks that the version has this value in all stores, and that they have the same data. A
/// version follows the time, so it is a later one if it was increased again later.
async fn bumped(stores: &[&Opened], version: u64) {
    for store in stores {
        let versions = store.versions(&[name("space")]).await.unwrap();
        assert_eq!(versions, [version]);
    }
    let expected = data(stores[0]).await;
    for store in stores {
        assert_eq!(data(store).await, expected);
    }
}

fn now(bucket: &Faulty) -> u64 {
    bucket.clock().now_millis().try_into().unwrap()
}

async fn bump(store: &Opened) -> ratchet_core::Result<Guarded<u64>> {
    store.bump(&name("space"), None).await
}

/// The process is suspended between its put and the answer. Meanwhile others apply its segment, and
/// delete it.
#[tokio::test]
async fn a_segment_that_was_applied_and_deleted_is_not_applied_again() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let gate = Gate::default();
    bucket.plan([Fault::HoldAnswer(gate.clone())]);
    let first = now(&bucket);
    let overtake = async {
        gate.reached().await;
        bury(&bucket, &fast, 1).await;
        gate.open();
    };
    let (answer, ()) = join(bump(&slow), overtake).await;
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unavailable);
    bumped(&[&slow, &fast], first).await;
    assert_eq!(bump(&slow).await.unwrap(), Guarded::Done(now(&bucket)));
    bumped(&[&slow, &fast], now(&bucket)).await;
}

/// The segment of its view is deleted, and the next one is not.
#[tokio::test]
async fn a_process_whose_next_segment_remains_continues() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let mut jobs = vec![add(&slow).await];
    jobs.extend(bury(&bucket, &fast, 1).await);
    assert!(bucket.has(&segment(2)).await);
    jobs.push(add(&slow).await);
    for store in [&slow, &fast] {
        assert!(has_all(store, &jobs).await);
    }
    assert_eq!(data(&slow).await, data(&fast).await);
}

/// The process is suspended between the check of its view and the put.
#[tokio::test]
async fn a_put_that_comes_after_the_log_has_passed_is_in_no_log() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let sleeper = open_brisk(&bucket.other()).await;
    data(&sleeper).await;
    data(&slow).await;
    let gate = Gate::default();
    bucket.plan([Fault::Hold(gate.clone())]);
    let first = now(&bucket);
    let overtake = async {
        gate.reached().await;
        bump(&fast).await.unwrap();
        bury(&bucket, &fast, 1).await;
        gate.open();
    };
    let (answer, ()) = join(bump(&slow), overtake).await;
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(bucket.has(&segment(1)).await);
    // This process would apply the segment next.
    bumped(&[&sleeper, &slow, &fast], first).await;
    bump(&sleeper).await.unwrap();
    bumped(&[&sleeper, &slow, &fast], now(&bucket)).await;
}

/// The answer of the first put is lost. The process is suspended before the second one, which then
/// takes effect after the segment was deleted.
#[tokio::test(start_paused = true)]
async fn a_repeated_put_does_not_look_like_the_segment_that_was_deleted() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let sleeper = open_brisk(&bucket.other()).await;
    data(&slow).await;
    let gate = Gate::default();
    bucket.plan([Fault::LoseAnswer, Fault::Hold(gate.clone())]);
    bucket.plan_at(Operation::Get, "/log/", Fault::Throttle);
    let first = now(&bucket);
    let overtake = async {
        gate.reached().await;
        // This process has the segment, and sleeps.
        bumped(&[&sleeper], first).await;
        bury(&bucket, &fast, 2).await;
        gate.open();
    };
    let (answer, ()) = join(bump(&slow), overtake).await;
    assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unavailable);
    assert!(bucket.has(&segment(1)).await);
    // It must not take the object for the segment.
    assert_eq!(bump(&sleeper).await.unwrap(), Guarded::Done(now(&bucket)));
    bumped(&[&sleeper, &slow, &fast], now(&bucket)).await;
}

/// A process that has been away for long finds its next number free, because the segments after
/// its view have been deleted.
#[tokio::test]
async fn a_process_that_is_far_behind_loses_nothing() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let mut jobs = vec![add(&slow).await];
    jobs.extend(bury(&bucket, &fast, 2).await);
    jobs.push(add(&slow).await);
    for store in [&slow, &fast] {
        assert!(has_all(store, &jobs).await);
    }
    assert_eq!(data(&slow).await, data(&fast).await);
    assert!(!bucket.has(&segment(2)).await, "it was put too late");
}

/// The processes that delete segments have a shorter retention than the one that was away.
#[tokio::test]
async fn a_process_with_another_retention_loses_nothing() {
    let bucket = Faulty::default();
    let slow = builder(&bucket).retention(100 * 60 * MINUTE);
    let (slow, fast) = (
        slow.connect().await.unwrap(),
        open_brisk(&bucket.other()).await,
    );
    let mut jobs = vec![add(&slow).await];
    jobs.extend(bury(&bucket, &fast, 2).await);
    jobs.push(add(&slow).await);
    for store in [&slow, &fast] {
        assert!(has_all(store, &jobs).await);
    }
    let refused = builder(&bucket).retention(29 * MINUTE).connect().await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Misconfigured);
}

/// Segments are deleted in any order, so the last one that the process has applied may remain.
#[tokio::test]
async fn a_process_whose_last_segment_remains_loses_nothing() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let mut jobs = vec![add(&slow).await];
    let last = bucket.objects().get(&segment(1)).await.unwrap();
    let last = last.bytes().await.unwrap();
    jobs.extend(bury(&bucket, &fast, 2).await);
    bucket
        .objects()
        .put(&segment(1), last.into())
        .await
        .unwrap();
    jobs.push(add(&slow).await);
    for store in [&slow, &fast] {
        assert!(has_all(store, &jobs).await);
    }
}

/// A put has created its segment. Then the process is suspended, and the service refuses the
/// request that shows whether the log had passed the segment.
#[tokio::test]
async fn a_put_that_cannot_be_confirmed_is_unknown() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    data(&store).await;
    let gate = Gate::default();
    bucket.plan([Fault::HoldAnswer(gate.clone())]);
    bucket.plan_at(Operation::List, "/floors", Fault::Deny);
    let suspend = async {
        gate.reached().await;
        bucket.clock().advance(10 * MINUTE);
        gate.open();
    };
    let (answer, ()) = join(bump(&store), suspend).await;
    let unknown = answer.unwrap_err();
    assert_eq!(unknown.kind(), StoreErrorKind::Unavailable, "{unknown}");
    assert!(format!("{unknown:?}").contains("unknown"), "{unknown:?}");
    bump(&store).await.unwrap();
}

/// The machine of a process is paused for 20 hours, and its clocks do not show it. The service
/// accepts its requests as long as the token is valid.
#[tokio::test(start_paused = true)]
async fn a_put_with_an_old_token_finds_the_segment_of_another_process() {
    let bucket = Faulty::default();
    let machine = ManualClock::new(bucket.clock().now());
    let on = |bucket: &Faulty| ObjectStore::on(Arc::new(bucket.clone()), "r").snapshot_every(2);
    let other = bucket.other();
    let slow = on(&bucket).machine_clock(machine).connect().await.unwrap();
    let fast = on(&other).manual_clock(bucket.clock().clone());
    let fast = fast.connect().await.unwrap();
    let gate = Gate::default();
    bucket.plan([Fault::Hold(gate.clone())]);
    let pause = async {
        gate.reached().await;
        for _ in 0..20 {
            bucket.clock().advance(60 * MINUTE);
            add(&fast).await;
            fast.log.snapshots.stored().await;
        }
        gate.open();
    };
    let (job, ()) = join(add(&slow), pause).await;
    for store in [&slow, &fast] {
        assert!(has_all(store, &[job]).await);
    }
    let refused = on(&bucket).retention(24 * 60 * MINUTE).check().unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    let life = on(&bucket).request_life(23 * 60 * MINUTE);
    life.retention(24 * 60 * MINUTE).check().unwrap();
}

/// Such a process may also find the segment of another one that is as far behind.
#[tokio::test]
async fn a_process_that_is_far_behind_reads_no_segment_that_came_too_late() {
    let bucket = Faulty::default();
    let (slow, fast) = (open_brisk(&bucket).await, open_brisk(&bucket.other()).await);
    let mut jobs = vec![add(&slow).await];
    jobs.extend(bury(&bucket, &fast, 2).await);
    let pause = PauseRequest::new(PauseScope::Queue(name("q")));
    let command = serde_json::to_string(&Command::Pause((&pause).into())).unwrap();
    let previous = slow.log.view.lock().await.id;
    let header = Header::new(2, uuid::Uuid::new_v4(), 0).after(previous);
    let late = document::encode(&header, [&*command]).unwrap();
    bucket
        .objects()
        .put(&segment(2), late.into())
        .await
        .unwrap();
    assert!(has_all(&slow, &jobs).await);
    assert_eq!(data(&slow).await, data(&fast).await);
    let page = PageRequest::first(100);
    let found = slow.select(&JobFilter::all(), &page).await.unwrap();
    assert_eq!(found.len(), jobs.len());
    assert_eq!(QueueStore::queues(&slow).await.unwrap().len(), 1);
}

/// A process is suspended before it begins a log in an empty bucket.
#[tokio::test]
async fn a_log_that_is_begun_too_late_is_none() {
    let bucket = Faulty::default();
    let gate = Gate::default();
    bucket.plan([Fault::Hold(gate.clone())]);
    let other = bucket.other();
    let overtake = async {
        gate.reached().await;
        let store = open_brisk(&other).await;
        let jobs = bury(&bucket, &store, 1).await;
        gate.open();
        (store, jobs)
    };
    let (late, (store, jobs)) = join(open_brisk(&bucket), overtake).await;
    assert!(bucket.has(&segment(0)).await);
    let job = add(&late).await;
    assert!(has_all(&late, &jobs).await);
    assert!(has_all(&store, &[job]).await);
    assert_eq!(data(&late).await, data(&store).await);
}

/// Another process, which was suspended before it reads the first segment, reads this object.
#[tokio::test]
async fn the_beginning_of_a_log_that_came_too_late_is_not_read() {
    let bucket = Faulty::default();
    let (begins, reads) = (Gate::default(), Gate::default());
    let first = segment(0);
    bucket.plan([Fault::Hold(begins.clone())]);
    let reader = bucket.other();
    reader.plan_at(Operation::Get, first.as_ref(), Fault::Hold(reads.clone()));
    let other = bucket.other();
    let overtake = async {
        begins.reached().await;
        reads.reached().await;
        let store = open_brisk(&other).await;
        let jobs = bury(&bucket, &store, 1).await;
        begins.open();
        while !bucket.has(&first).await {
            tokio::task::yield_now().await;
        }
        reads.open();
        (store, jobs)
    };
    let opened = join(open_brisk(&bucket), open_brisk(&reader));
    let ((late, read), (store, jobs)) = join(opened, overtake).await;
    for opened in [&late, &read] {
        let job = add(opened).await;
        assert!(has_all(opened, &jobs).await);
        assert!(has_all(&store, &[job]).await);
    }
}

/// A panic in the middle of a segment leaves data that is in no log.
#[tokio::test]
async fn a_panic_while_a_command_is_applied_ends_the_store() {
    let bucket = Faulty::default();
    let (broken, other) = (open(&bucket).await, open(&bucket.other()).await);
    let gate = Gate::default();
    bucket.plan([Fault::Hold(gate.clone())]);
    let panics = |command: &Command<'_>| {
        assert!(!matches!(command, Command::Pause(_)), "a panic of the test");
    };
    *broken.log.hooks.before_apply.lock().unwrap() = Some(Box::new(panics));
    // The second segment contains the calls that gather during the first put.
    let held = async {
        gate.reached().await;
        tokio::task::yield_now().await;
        gate.open();
    };
    let pause = PauseRequest::new(PauseScope::Queue(name("q")));
    let calls = futures_util::future::join3(add(&broken), bump(&broken), broken.pause(&pause));
    let ((_, _, paused), ()) = join(calls, held).await;
    assert!(paused.is_err());
    let expected = data(&other).await;
    for _ in 0..3 {
        let failed = bump(&broken).await.unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Other);
        let text = format!("{failed:?}");
        assert!(text.contains("object r/log/0000000000000000000"), "{text}");
        let versions = broken.versions(&[name("space")]).await;
        assert_eq!(versions.unwrap_err().kind(), StoreErrorKind::Other);
    }
    bumped(&[&other], now(&bucket)).await;
    assert_eq!(data(&other).await, expected);
}
