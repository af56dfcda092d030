//! How many requests calls make, and what time they see.

use ratchet_core::store::{NodeStore, Store};

use super::faulty::Counts;
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
        snapshot_stored(&store).await;
    }
    bucket.counts();
    let store = open(&bucket).await;
    // The manifest, the snapshot, and what remains of the probe.
    assert!(bucket.counts().gets <= 4);
    data(&store).await;
    let counts = bucket.counts();
    assert!(
        counts.gets <= 24 && counts.puts == 0 && counts.lists == 0,
        "{counts:?}"
    );
}

/// While nothing happens, one small request in 30 seconds remains.
#[tokio::test(start_paused = true)]
async fn an_idle_process_looks_more_and_more_rarely() {
    let bucket = Faulty::default();
    let (store, other) = (open(&bucket).await, open(&bucket.other()).await);
    let mut wakeups = store.coordinator().unwrap().subscribe();
    bucket.counts();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let counts = bucket.counts();
    assert!((100..=130).contains(&counts.gets), "{counts:?}");
    assert_eq!((counts.puts, counts.lists), (0, 0));
    // A job of another process is found without a call.
    add(&other).await;
    wakeups.next().await;
    assert!(bucket.counts().gets <= 3);
}

#[tokio::test]
async fn the_time_does_not_follow_the_clock_of_the_machine() {
    let bucket = Faulty::default();
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
