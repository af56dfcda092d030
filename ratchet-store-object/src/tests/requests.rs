//! How many requests calls make, and what time they see.

use ratchet_core::memory::ManualClock;
use ratchet_core::store::{NodeStore, Store};
use ratchet_core::{StoreErrorKind, time};

use super::faulty::{Counts, Fault, Operation, failed};
use super::*;

#[tokio::test]
async fn a_call_that_changes_nothing_costs_one_small_request() {
    let bucket = Faulty::default();
    let store = open(&bucket).await;
    // The first look after opening also checks the snapshot.
    data(&store).await;
    bucket.counts();
    let one_get = Counts {
        gets: 1,
        ..Counts::default()
    };
    assert!(claim(&store).await.is_empty());
    assert_eq!(bucket.counts(), one_get);
    store.get(&[JobId::new()], Detail::Whole).await.unwrap();
    assert_eq!(bucket.counts(), one_get);
    add(&store).await;
    let one_put = Counts {
        puts: 1,
        ..Counts::default()
    };
    assert_eq!(bucket.counts(), one_put);
}

#[tokio::test]
async fn an_opened_store_reads_the_snapshot_and_what_follows_it() {
    let bucket = Faulty::default();
    let store = builder(&bucket).snapshot_every(20).connect().await.unwrap();
    for _ in 0..22 {
        add(&store).await;
        store.log.snapshots.stored().await;
    }
    bucket.counts();
    let store = open(&bucket).await;
    // The manifest, the snapshot, and what remains of the probe.
    assert!(bucket.counts().gets <= 4);
    data(&store).await;
    let counts = bucket.counts();
    assert!(
        counts.gets <= 24 && counts.puts == 0 && counts.lists <= 2,
        "{counts:?}"
    );
}

/// A bucket whose service has a clock that runs with tokio's, and a store on it whose machine has
/// this clock too.
async fn open_running() -> (Faulty, Opened) {
    let bucket = Faulty::with_clock(ManualClock::running(time::from_millis(1_790_000_000_123)));
    let store = open_on(&bucket, bucket.clock()).await;
    (bucket, store)
}

/// While nothing happens, one small request in 30 seconds remains, and after 16 of them another
/// one: whether a process waits for a snapshot.
#[tokio::test(start_paused = true)]
async fn an_idle_process_looks_more_and_more_rarely() {
    let (bucket, store) = open_running().await;
    let other = open_on(&bucket.other(), bucket.clock()).await;
    let mut wakeups = store.coordinator().unwrap().subscribe();
    data(&store).await;
    bucket.counts();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let Counts { gets, .. } = bucket.counts();
    let only_gets = Counts {
        gets,
        ..Counts::default()
    };
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let counts = bucket.counts();
    assert_eq!((counts.puts, counts.lists, counts.deletes), (0, 0, 0));
    assert!(
        (120..=128).contains(&counts.gets),
        "{counts:?} after {only_gets:?}"
    );
    // A job of another process is found without a call.
    add(&other).await;
    wakeups.next().await;
    assert!(bucket.counts().gets <= 3);
    // A call needs the time, which is measured again.
    add(&store).await;
    let counts = bucket.counts();
    assert_eq!((counts.puts, counts.deletes), (2, 1), "{counts:?}");
}

/// A call finds the job of another process between two looks, so more jobs may follow.
#[tokio::test(start_paused = true)]
async fn a_job_that_a_call_has_found_makes_looks_more_frequent() {
    let bucket = Faulty::default();
    let (store, other) = (open(&bucket).await, open(&bucket.other()).await);
    let _wakeups = store.coordinator().unwrap().subscribe();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    add(&other).await;
    data(&store).await;
    bucket.counts();
    // At most 30 s until the next look, and then 0.5, 1, 2, 4, 8 and 16 s.
    tokio::time::sleep(Duration::from_secs(62)).await;
    let counts = bucket.counts();
    assert!(counts.gets >= 6, "{counts:?}");
}

/// Without a new measurement, the old one counts.
#[tokio::test(start_paused = true)]
async fn a_measurement_that_fails_stops_no_call() {
    let (bucket, store) = open_running().await;
    for _ in 0..20 {
        bucket.plan_at(Operation::Put, "/probes/", Fault::Throttle);
    }
    tokio::time::sleep(Duration::from_secs(16 * 60)).await;
    for _ in 0..5 {
        add(&store).await;
    }
    assert_eq!(bucket.planned(), 19);
    let ahead = created_at(&store).await - bucket.clock().now_millis();
    assert!(ahead.abs() <= 1_000, "{ahead}");
    tokio::time::sleep(Duration::from_secs(61)).await;
    add(&store).await;
    assert_eq!(bucket.planned(), 18);
}

#[tokio::test]
async fn the_time_does_not_follow_the_clock_of_the_machine() {
    let bucket = Faulty::with_clock(ManualClock::running(time::wall_clock()));
    let machine = ManualClock::running(time::wall_clock());
    let other = ManualClock::running(time::wall_clock());
    other.advance(Duration::from_secs(3_600));
    let stores = [
        ObjectStore::on(Arc::new(bucket.clone()), "r").machine_clock(machine.clone()),
        ObjectStore::on(Arc::new(bucket.clone()), "r").machine_clock(other),
    ];
    let mut opened = Vec::new();
    for store in stores {
        opened.push(store.connect().await.unwrap());
    }
    let mut last = time::from_millis(0);
    for round in 0..40 {
        let store = &opened[round % 2];
        let job = add(store).await;
        let stored = store.get(&[job], Detail::Whole).await.unwrap();
        let created_at = stored[0].as_ref().unwrap().created_at;
        assert!(last <= created_at, "{created_at} after {last}");
        last = created_at;
        let read = store.database_time().await.unwrap();
        assert!(created_at <= read, "{read} after {created_at}");
        // One second is the bound; the rest is for a slow machine.
        let ahead = time::to_millis(read) - time::to_millis(time::wall_clock());
        assert!(ahead.abs() < 60_000, "{ahead}");
        match round {
            10 => machine.set_back(Duration::from_secs(3_600)),
            20 => machine.advance(Duration::from_secs(7_200)),
            _ => {}
        }
    }
}

/// A store whose machine has this clock.
async fn open_on(bucket: &Faulty, machine: &ManualClock) -> Opened {
    let store = ObjectStore::on(Arc::new(bucket.clone()), "r").machine_clock(machine.clone());
    store.connect().await.unwrap()
}

async fn created_at(store: &Opened) -> i64 {
    let job = add(store).await;
    let found = store.get(&[job], Detail::Whole).await.unwrap();
    time::to_millis(found[0].as_ref().unwrap().created_at)
}

/// The monotonic clock stops while a machine is suspended.
#[tokio::test(start_paused = true)]
async fn the_time_after_a_suspension_is_that_of_the_server() {
    let bucket = Faulty::default();
    let machine = ManualClock::new(bucket.clock().now());
    let store = open_on(&bucket, &machine).await;
    assert_eq!(created_at(&store).await, bucket.clock().now_millis());
    for clock in [bucket.clock(), &machine] {
        clock.advance(Duration::from_secs(8 * 3_600));
    }
    assert_eq!(created_at(&store).await, bucket.clock().now_millis());
}

#[tokio::test(start_paused = true)]
async fn a_command_is_not_earlier_than_a_read() {
    let bucket = Faulty::default();
    let machine = ManualClock::new(bucket.clock().now());
    let store = open_on(&bucket, &machine).await;
    machine.advance(Duration::from_millis(900));
    let read = time::to_millis(store.database_time().await.unwrap());
    machine.set_back(Duration::from_millis(800));
    assert!(created_at(&store).await >= read);
}

/// The pauses between puts that fail do not make a measurement less exact.
#[tokio::test(start_paused = true)]
async fn a_measurement_is_one_put() {
    let bucket = Faulty::default();
    for _ in 0..2 {
        bucket.plan_at(Operation::Put, "/probes/", Fault::None);
    }
    bucket.plan_at(Operation::Put, "/probes/", Fault::None);
    bucket.plan_at(
        Operation::Put,
        "/probes/",
        Fault::Fail(|_| failed("503 SlowDown")),
    );
    // Ahead of the server by more than the pause.
    let machine = ManualClock::new(bucket.clock().now());
    machine.advance(Duration::from_secs(3_600));
    let store = open_on(&bucket, &machine).await;
    let ahead = created_at(&store).await - bucket.clock().now_millis();
    assert!((0..=1_000).contains(&ahead), "{ahead}");
}

#[tokio::test(start_paused = true)]
async fn the_findings_name_what_is_wrong() {
    let (bucket, store) = open_running().await;
    let findings = async || {
        let found = store.diagnostics().unwrap().findings().await.unwrap();
        found.iter().map(|found| found.code).collect::<Vec<_>>()
    };
    assert_eq!(findings().await, [""; 0]);
    // The rights have changed since the store was opened.
    bucket.plan_at(Operation::Delete, "/probes/", Fault::Deny);
    assert_eq!(findings().await, ["object_storage"]);
    for _ in 0..2 {
        bucket.plan_at(Operation::Put, "/probes/", Fault::Deny);
    }
    assert_eq!(findings().await, ["object_storage"]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_clock_must_be_wrong_is_refused() {
    let bucket = Faulty::default();
    let machine = ManualClock::new(bucket.clock().now());
    machine.advance(Duration::from_secs(25 * 3_600));
    let store = ObjectStore::on(Arc::new(bucket.clone()), "r").machine_clock(machine);
    let refused = store.connect().await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Misconfigured, "{refused}");
}
