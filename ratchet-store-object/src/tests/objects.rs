//! Objects that are missing, damaged, or of another version.

use std::pin::pin;

use futures_util::future::{Either, select};
use object_store::ObjectStoreExt;
use ratchet_core::model::{PutRecurring, Recurring};
use ratchet_core::store::{RecurringStore, Store};
use ratchet_core::{SchemaProblem, StoreErrorKind};

use super::faulty::{Fault, Gate, Operation, failed, taken};
use super::*;
use crate::document;

#[tokio::test]
async fn a_damaged_segment_is_named_and_nothing_follows_it() {
    for keep in [0, 70, 200] {
        let bucket = Faulty::default();
        let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
        let job = add(&writer).await;
        let mut whole = Vec::new();
        bucket
            .replace(&segment(1), |bytes| {
                whole = bytes;
                whole[..keep].to_vec()
            })
            .await;
        let failed = reader.get(&[job], Detail::Whole).await.unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
        assert!(
            format!("{failed:?}").contains("log/00000000000000000001"),
            "{failed:?}"
        );
        let failed = reader
            .enqueue(&[NewJob::new("kind", &())])
            .await
            .unwrap_err();
        assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
        let new = builder(&bucket.other()).connect().await.unwrap();
        assert!(new.get(&[job], Detail::Whole).await.is_err());
        // Restored from a backup.
        bucket.replace(&segment(1), |_| whole).await;
        assert!(has_all(&reader, &[job]).await);
        assert_eq!(data(&reader).await, data(&writer).await);
    }
}

#[tokio::test]
async fn a_segment_of_a_newer_version_is_named_and_nothing_follows_it() {
    let bucket = Faulty::default();
    let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
    let job = add(&writer).await;
    let format = |format: u32| format!("\"format\":{format}");
    for (from, to) in [
        (format(document::FORMAT), format(document::FORMAT + 1)),
        ("\"enqueue\"".to_owned(), "\"novelty\"".to_owned()),
    ] {
        let mut known = Vec::new();
        bucket
            .replace(&segment(1), |bytes| {
                known = bytes;
                let text = String::from_utf8(known.clone()).unwrap();
                let (_, text) = text.split_once('\n').unwrap();
                document::sealed(&text.replacen(&from, &to, 1)).into_bytes()
            })
            .await;
        bucket.counts();
        for failed in [
            reader.get(&[job], Detail::Whole).await.map(drop),
            reader.enqueue(&[NewJob::new("kind", &())]).await.map(drop),
        ] {
            let failed = failed.unwrap_err();
            let newer = StoreErrorKind::SchemaMismatch(SchemaProblem::Newer);
            assert_eq!(failed.kind(), newer, "{failed}");
            assert!(format!("{failed:?}").contains("upgrade"), "{failed:?}");
        }
        assert!(bucket.objects().head(&segment(2)).await.is_err());
        bucket.replace(&segment(1), |_| known).await;
    }
    assert!(has_all(&reader, &[job]).await);
}

#[tokio::test]
async fn a_segment_of_an_older_version_needs_the_older_version() {
    let bucket = Faulty::default();
    let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
    add(&writer).await;
    bucket
        .replace(&segment(1), |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            let (_, text) = text.split_once('\n').unwrap();
            let format = format!("\"format\":{}", document::FORMAT);
            document::sealed(&text.replacen(&format, "\"format\":0", 1)).into_bytes()
        })
        .await;
    let failed = reader
        .get(&[JobId::new()], Detail::Whole)
        .await
        .unwrap_err();
    let older = StoreErrorKind::SchemaMismatch(SchemaProblem::Altered);
    assert_eq!(failed.kind(), older, "{failed}");
    let text = format!("{failed:?}");
    assert!(
        !text.contains("upgrade") && text.contains("older version"),
        "{text}"
    );
}

/// An operator may have copied objects.
#[tokio::test]
async fn a_segment_under_another_number_is_named() {
    let bucket = Faulty::default();
    let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
    let job = add(&writer).await;
    bucket
        .objects()
        .copy(&segment(1), &segment(2))
        .await
        .unwrap();
    let jobs = [job];
    let failed = reader.get(&jobs, Detail::Whole);
    let failed = tokio::time::timeout(Duration::from_secs(60), failed)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
    assert!(
        format!("{failed:?}").contains("the content of segment 1"),
        "{failed:?}"
    );
}

/// A put meets a segment of another process, which is damaged.
#[tokio::test]
async fn a_newer_snapshot_replaces_a_damaged_segment_that_a_put_meets() {
    // So much remains of the segment: its header, or not even that.
    for (keep, lost) in [(500, false), (40, true)] {
        let bucket = Faulty::default();
        let (reader, writer) = (open(&bucket).await, open_brisk(&bucket.other()).await);
        data(&reader).await;
        let mut jobs = vec![add(&writer).await, add(&writer).await];
        writer.log.snapshots.stored().await;
        bucket
            .replace(&segment(1), |bytes| bytes[..keep].to_vec())
            .await;
        let first = NewJob::new("kind", &());
        let put = reader.enqueue(std::slice::from_ref(&first)).await;
        if lost {
            // The damaged segment could be its own.
            let unknown = put.unwrap_err();
            assert_eq!(unknown.kind(), StoreErrorKind::Unavailable, "{unknown}");
        } else {
            put.unwrap();
            jobs.push(first.id());
        }
        jobs.push(add(&reader).await);
        for store in [&reader, &writer] {
            assert!(has_all(store, &jobs).await);
        }
        assert_eq!(data(&reader).await, data(&writer).await);
    }
}

/// A process that had applied the segment before it was damaged does nothing but look for jobs.
#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_read_a_segment_gets_a_snapshot() {
    let bucket = Faulty::default();
    let (reader, idle) = (open(&bucket).await, open(&bucket.other()).await);
    let _wakeups = idle.coordinator().unwrap().subscribe();
    let job = add(&idle).await;
    bucket
        .replace(&segment(1), |bytes| bytes[..40].to_vec())
        .await;
    let mut minutes = 0;
    while reader.get(&[job], Detail::Whole).await.is_err() {
        minutes += 1;
        assert!(minutes < 15, "no process has stored a snapshot");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert!(has_all(&reader, &[job]).await);
    assert_eq!(snapshots(&bucket).await.len(), 1);
    // The note remains, and is answered once.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(snapshots(&bucket).await.len(), 1);
}

/// An operator deletes all objects while processes run.
#[tokio::test]
async fn two_logs_under_one_prefix_are_not_mixed() {
    let bucket = Faulty::default();
    let old = open(&bucket).await;
    for _ in 0..3 {
        add(&old).await;
    }
    for name in names(&bucket, "r").await {
        bucket.objects().delete(&name).await.unwrap();
    }
    let new = open(&bucket.other()).await;
    for _ in 0..2 {
        add(&new).await;
    }
    // The old process continues with number 4.
    add(&old).await;
    add(&new).await;
    let expected = new.log.data().unwrap().encode().unwrap();
    let reader = open(&bucket.other()).await;
    for store in [&new, &reader] {
        let mixed = store.enqueue(&[NewJob::new("kind", &())]).await;
        let mixed = mixed.unwrap_err();
        assert_eq!(mixed.kind(), StoreErrorKind::Corrupt, "{mixed}");
        let text = format!("{mixed:?}");
        assert!(
            text.contains("log/00000000000000000004") && text.contains("another log"),
            "{text}"
        );
        let unchanged = store.log.data().unwrap().encode().unwrap();
        assert_eq!(unchanged, expected);
    }
}

/// A segment may be damaged after processes have applied it.
#[tokio::test]
async fn a_newer_snapshot_replaces_a_damaged_segment() {
    let bucket = Faulty::default();
    let (reader, writer) = (open(&bucket).await, open_brisk(&bucket.other()).await);
    let mut jobs = vec![add(&writer).await];
    bucket
        .replace(&segment(1), |bytes| bytes[..40].to_vec())
        .await;
    assert!(reader.get(&jobs, Detail::Whole).await.is_err());
    jobs.push(add(&writer).await);
    writer.log.snapshots.stored().await;
    assert!(has_all(&reader, &jobs).await);
    assert!(has_all(&open(&bucket.other()).await, &jobs).await);
}

/// The text of the last segment is damaged. Its header still shows that it is in the log.
#[tokio::test]
async fn a_process_that_has_applied_a_damaged_segment_continues() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    let job = add(&store).await;
    bucket
        .replace(&segment(1), |mut bytes| {
            bytes.pop();
            bytes
        })
        .await;
    bucket.clock().advance(Duration::from_secs(3_600));
    let jobs = [job, add(&store).await];
    assert!(has_all(&store, &jobs).await);
}

#[tokio::test]
async fn a_snapshot_whose_segment_was_deleted_is_named() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    for _ in 0..2 {
        add(&store).await;
    }
    store.log.snapshots.stored().await;
    bucket.objects().delete(&segment(2)).await.unwrap();
    let opened = open(&bucket.other()).await;
    let failed = opened
        .get(&[JobId::new()], Detail::Whole)
        .await
        .unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
    let text = format!("{failed:?}");
    assert!(text.contains("log/00000000000000000002"), "{text}");
}

/// All snapshots are damaged, and the segments before them are deleted.
#[tokio::test]
async fn a_log_that_ends_before_its_snapshots_is_refused() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    bury(&bucket, &store, 1).await;
    for snapshot in snapshots(&bucket).await {
        bucket
            .replace(&snapshot, |bytes| bytes[..40].to_vec())
            .await;
    }
    // That of a process that was suspended before it began the log.
    let header = document::Header::new(0, uuid::Uuid::new_v4(), 0);
    let first = document::encode(&header, []).unwrap();
    bucket
        .objects()
        .put(&segment(0), first.into())
        .await
        .unwrap();
    let opened = open(&bucket.other()).await;
    let failed = opened
        .enqueue(&[NewJob::new("kind", &())])
        .await
        .unwrap_err();
    assert_eq!(failed.kind(), StoreErrorKind::Corrupt, "{failed}");
}

/// The newest snapshot is damaged, and the segments before it were deleted by an operator.
#[tokio::test]
async fn a_log_that_ends_before_a_damaged_snapshot_is_refused() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    for _ in 0..4 {
        add(&store).await;
        store.log.snapshots.stored().await;
    }
    let newest = snapshots(&bucket).await.pop().unwrap();
    bucket.replace(&newest, |bytes| bytes[..40].to_vec()).await;
    for number in [3, 4] {
        bucket.objects().delete(&segment(number)).await.unwrap();
    }
    let failed = open(&bucket.other()).await;
    let failed = failed.enqueue(&[NewJob::new("kind", &())]).await;
    assert_eq!(failed.unwrap_err().kind(), StoreErrorKind::Corrupt);
}

/// A snapshot is damaged on its way.
#[tokio::test]
async fn a_snapshot_that_cannot_be_read_replaces_nothing() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    let (mut jobs, mut attempts) = (Vec::new(), 0);
    for _ in 0..12 {
        let gate = Gate::default();
        bucket.plan_at(
            Operation::Put,
            "/snapshots/",
            Fault::HoldAnswer(gate.clone()),
        );
        bucket.clock().advance(Duration::from_secs(3_600));
        jobs.push(add(&store).await);
        let (put, ends) = (gate.reached(), store.log.snapshots.stored());
        if let Either::Left(_) = select(pin!(put), pin!(ends)).await {
            let stored = snapshots(&bucket).await.pop().unwrap();
            bucket.replace(&stored, |bytes| bytes[..400].to_vec()).await;
            attempts += 1;
            gate.open();
        }
        store.log.snapshots.stored().await;
        bucket.end();
    }
    assert!(attempts > 5, "{attempts}");
    assert_eq!(snapshots(&bucket).await, []);
    assert_eq!(names(&bucket, "r/log").await.len(), 13);
    assert!(has_all(&open(&bucket).await, &jobs).await);
}

#[tokio::test]
async fn a_snapshot_that_is_missing_or_damaged_is_replaced_by_another() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(2).connect().await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..7 {
        jobs.push(add(&store).await);
        store.log.snapshots.stored().await;
    }
    let mut snapshots = snapshots(&bucket).await;
    assert_eq!(snapshots.len(), 3);
    let expected = data(&store).await;
    // The manifest names the last one.
    bucket
        .replace(&snapshots[2], |bytes| bytes[..40].to_vec())
        .await;
    assert_eq!(data(&open(&bucket).await).await, expected);
    while let Some(snapshot) = snapshots.pop() {
        bucket.objects().delete(&snapshot).await.unwrap();
        assert_eq!(data(&open(&bucket).await).await, expected);
    }
    bucket
        .objects()
        .delete(&Path::from("r/manifest"))
        .await
        .unwrap();
    assert_eq!(data(&open(&bucket).await).await, expected);
    assert!(has_all(&open(&bucket).await, &jobs).await);
}

#[tokio::test]
async fn a_log_without_its_beginning_is_refused() {
    let bucket = Faulty::default();
    add(&open(&bucket).await).await;
    bucket.objects().delete(&segment(0)).await.unwrap();
    let refused = builder(&bucket).connect().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Corrupt, "{refused}");
}

/// Another process begins the log between two looks at it.
#[tokio::test]
async fn a_log_that_begins_while_it_is_opened_has_its_beginning() {
    let bucket = Faulty::default();
    let gate = Gate::default();
    bucket.plan_at(Operation::List, "r/log", Fault::Hold(gate.clone()));
    let other = bucket.other();
    let begin = async {
        gate.reached().await;
        let job = add(&open(&other).await).await;
        gate.open();
        job
    };
    let (store, job) = futures_util::future::join(open(&bucket), begin).await;
    assert!(has_all(&store, &[job]).await);
}

/// Services fail now and then.
#[tokio::test(start_paused = true)]
async fn opening_repeats_requests_that_fail() {
    let bucket = Faulty::default();
    for (operation, name) in [
        (Operation::Put, "/probes/"),
        (Operation::Get, "/manifest"),
        (Operation::List, "/snapshots"),
        (Operation::List, "/log"),
        (Operation::Put, "/log/"),
    ] {
        bucket.plan_at(operation, name, Fault::Throttle);
    }
    // The log has begun, and the answer is lost.
    bucket.plan_at(Operation::Put, "/log/", Fault::LoseAnswer);
    let store = open(&bucket).await;
    let job = add(&store).await;
    assert!(has_all(&open(&bucket.other()).await, &[job]).await);
}

#[tokio::test]
async fn what_snapshots_replace_is_deleted() {
    let bucket = Faulty::default();
    let store = open_brisk(&bucket).await;
    // An object of another program does not stop the deletion.
    bucket
        .objects()
        .put(&Path::from("r/log/00000000000000000001.bak"), "x".into())
        .await
        .unwrap();
    let mut jobs = Vec::new();
    for _ in 0..20 {
        bucket.clock().advance(Duration::from_secs(7_200));
        jobs.push(add(&store).await);
        store.log.snapshots.stored().await;
    }
    assert_eq!(snapshots(&bucket).await.len(), 2);
    let mut log = names(&bucket, "r/log").await;
    assert_eq!(log.remove(0).filename(), Some("00000000000000000001.bak"));
    assert_eq!(log, [18, 19, 20].map(segment));
    assert_eq!(names(&bucket, "r/probes").await, []);
    let floors = names(&bucket, "r/floors").await;
    assert_eq!(floors, [Path::from(format!("r/floors/{:020}", 18))]);
    assert!(has_all(&open(&bucket).await, &jobs).await);
}

#[tokio::test]
async fn nothing_is_deleted_before_its_time() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(2).connect().await.unwrap();
    for _ in 0..10 {
        add(&store).await;
        store.log.snapshots.stored().await;
    }
    assert_eq!(snapshots(&bucket).await.len(), 5);
    assert_eq!(names(&bucket, "r/log").await.len(), 11);
}

#[tokio::test]
async fn a_service_without_conditional_puts_is_refused() {
    let refused = builder(&Faulty::without_conditions())
        .connect()
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
    assert!(
        format!("{refused:?}").contains("conditional writes"),
        "{refused:?}"
    );
}

/// The rights of a process may not suffice to replace or delete objects.
#[tokio::test]
async fn a_service_that_refuses_changes_is_refused() {
    for operation in [Operation::Put, Operation::Delete] {
        let bucket = Faulty::default();
        if operation == Operation::Put {
            // Three puts are conditional.
            for _ in 0..3 {
                bucket.plan_at(operation, "/probes/", Fault::None);
            }
        }
        bucket.plan_at(operation, "/probes/", Fault::Deny);
        let refused = builder(&bucket).connect().await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
        assert!(
            format!("{refused:?}").contains("must be able"),
            "{refused:?}"
        );
        bucket.plan_at(operation, "/probes/", Fault::Throttle);
        add(&open(&bucket).await).await;
    }
}

/// The service refuses both puts of the probe, and one of them takes effect later.
#[tokio::test]
async fn a_service_that_puts_what_it_has_refused_is_asked_again() {
    let bucket = Faulty::default();
    let arrives = Arc::new(tokio::sync::Notify::new());
    arrives.notify_one();
    bucket.plan_at(Operation::Put, "/probes/", Fault::Conflict(arrives));
    bucket.plan_at(Operation::Put, "/probes/", Fault::Fail(taken));
    add(&open(&bucket).await).await;
}

/// A service may refuse both puts of the probe because of each other.
#[tokio::test]
async fn a_service_that_refuses_puts_at_the_same_time_is_asked_again() {
    let bucket = Faulty::default();
    for _ in 0..2 {
        bucket.plan_at(Operation::Put, "/probes/", Fault::Fail(taken));
    }
    let store = open(&bucket).await;
    add(&store).await;
}

type Failing = fn(&Path) -> object_store::Error;

#[tokio::test]
async fn refusals_are_told_from_failures() {
    let missing = |name: &Path| object_store::Error::NotFound {
        path: name.to_string(),
        source: "NoSuchBucket".into(),
    };
    let expired = |_: &Path| failed("status code: 400 Bad Request: ExpiredToken");
    let errors: [(Failing, &str); 2] = [
        (missing, "bucket does not exist"),
        (expired, "ExpiredToken"),
    ];
    for (error, text) in errors {
        let bucket = Faulty::default();
        let store = open(&bucket).await;
        bucket.plan([Fault::Fail(error)]);
        let refused = store.enqueue(&[NewJob::new("kind", &())]).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
        assert!(format!("{refused:?}").contains(text), "{refused:?}");
        add(&store).await;
    }
}

/// Another process may have newer time-zone data.
#[tokio::test]
async fn a_time_zone_that_a_process_does_not_know_is_named() {
    let bucket = Faulty::default();
    let (reader, writer) = (open(&bucket).await, open(&bucket.other()).await);
    let recurring = Recurring::cron("0 4 * * *").zone("Europe/Berlin");
    let recurring = recurring.named("nightly");
    let put = PutRecurring::new(recurring.job(NewJob::new("tick", &())).check().unwrap());
    writer.put(&put).await.unwrap();
    bucket
        .replace(&segment(1), |bytes| {
            let text = String::from_utf8(bytes).unwrap();
            let (_, text) = text.split_once('\n').unwrap();
            document::sealed(&text.replace("Europe/Berlin", "Europe/Novel")).into_bytes()
        })
        .await;
    let failed = reader.find(&name("nightly")).await.unwrap_err();
    let text = format!("{failed:?}");
    assert!(
        text.contains("Europe/Novel") && text.contains("time-zone data"),
        "{text}"
    );
}
