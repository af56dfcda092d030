//! The guarantees of candidates and leaders, on the memory store under paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ratchet_core::cluster::{Election, ElectionOutcome, LeaderTimings};
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::model::Fenced;
use ratchet_core::store::LockStore;
use ratchet_core::time::{monotonic, wall_clock};
use ratchet_core::{Fence, MemoryStore, Name, NodeId, SharedStore, StoreErrorKind};
use tokio::time::{advance, sleep};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

fn role() -> Name {
    Name::new("role", "pricing").unwrap()
}

fn timings() -> LeaderTimings {
    LeaderTimings::default()
}

/// Returns a candidate and its id.
fn candidate(store: &MemoryStore) -> (Election, NodeId) {
    let store: SharedStore = Arc::new(store.clone());
    (
        Election::new(store, &role(), timings()).unwrap(),
        NodeId::new(),
    )
}

async fn elected(election: &mut Election, owner: NodeId) -> Fence {
    match election.turn(owner).await.unwrap() {
        ElectionOutcome::Elected(term) => term,
        other => panic!("not elected: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_others_know_who_and_for_how_long() {
    let store = MemoryStore::new();
    let ((mut a, a_id), (mut b, b_id)) = (candidate(&store), candidate(&store));
    let term = elected(&mut a, a_id).await;
    assert_eq!(a.leadership().term(), Some(term));
    advance(SECOND).await;
    let other = ElectionOutcome::OtherLeader {
        leader: Name::new("owner", a_id.to_string()).unwrap(),
        remaining: timings().ttl - SECOND,
    };
    assert_eq!(b.turn(b_id).await.unwrap(), other);
    assert!(!b.leadership().is_leader());
    assert_eq!(
        a.turn(a_id).await.unwrap(),
        ElectionOutcome::AlreadyLeader(term)
    );
    let seen = Election::inspect(&(Arc::new(store) as SharedStore), &role()).await;
    assert_eq!(
        seen.unwrap().unwrap().holder.unwrap().remaining,
        timings().ttl
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_its_database_fences_itself_before_its_lock_expires() {
    let away = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicUsize::new(0));
    let (gone, counted) = (Arc::clone(&away), Arc::clone(&calls));
    let store = MemoryStore::new();
    let cut_off = store.clone().with_faults(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        match gone.load(Ordering::SeqCst) {
            true => Fault::ErrorBeforeCommit,
            false => Fault::None,
        }
    });
    let (mut leader, id) = candidate(&cut_off);
    let (mut standby, standby_id) = candidate(&store);
    elected(&mut leader, id).await;
    away.store(true, Ordering::SeqCst);
    let mut since = Duration::ZERO;
    while since < timings().fence_timeout {
        assert!(leader.leadership().is_leader(), "{since:?}");
        let other = standby.turn(standby_id).await.unwrap();
        assert!(matches!(other, ElectionOutcome::OtherLeader { .. }));
        advance(SECOND).await;
        since += SECOND;
        leader.turn(id).await.unwrap_err();
    }
    let asked = calls.load(Ordering::SeqCst);
    assert!(!leader.leadership().is_leader());
    assert_eq!(
        calls.load(Ordering::SeqCst),
        asked,
        "expected no further database call by the check"
    );
    // The leader stopped leading before its lock expired.
    let other = standby.turn(standby_id).await.unwrap();
    assert!(matches!(other, ElectionOutcome::OtherLeader { .. }));
}

#[tokio::test(start_paused = true)]
async fn one_failed_renewal_demotes_no_leader() {
    let failing = Arc::new(AtomicBool::new(false));
    let fail = Arc::clone(&failing);
    let store = MemoryStore::new().with_faults(move |operation| {
        match operation == "renew" && fail.swap(false, Ordering::SeqCst) {
            true => Fault::Delay(Duration::from_secs(3_600)),
            false => Fault::None,
        }
    });
    let (mut leader, id) = candidate(&store);
    let term = elected(&mut leader, id).await;
    sleep(timings().heartbeat).await;
    failing.store(true, Ordering::SeqCst);
    let before = monotonic();
    let error = leader.turn(id).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Timeout);
    assert_eq!(before.elapsed(), timings().renew_timeout);
    assert!(leader.leadership().is_leader());
    assert_eq!(
        leader.turn(id).await.unwrap(),
        ElectionOutcome::AlreadyLeader(term)
    );
}

#[tokio::test(start_paused = true)]
async fn trust_counts_from_before_the_renewal_was_sent() {
    let slow = Duration::from_millis(1_900);
    let store = MemoryStore::new().with_faults(move |operation| match operation {
        "renew" => Fault::DelayedAnswer(slow),
        _ => Fault::None,
    });
    let (mut leader, id) = candidate(&store);
    elected(&mut leader, id).await;
    leader.turn(id).await.unwrap();
    advance(timings().fence_timeout - slow - MILLI).await;
    assert!(leader.leadership().is_leader());
    advance(MILLI).await;
    assert!(!leader.leadership().is_leader());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_is_none_before_it_does_anything() {
    let store = MemoryStore::new();
    let ((mut old, old_id), (mut new, new_id)) = (candidate(&store), candidate(&store));
    let first = elected(&mut old, old_id).await;
    // Simulates a process that is suspended, so neither a turn nor the watchdog runs.
    advance(timings().ttl).await;
    let second = elected(&mut new, new_id).await;
    assert!(second > first);
    assert!(!old.leadership().is_leader());
    assert_eq!(old.leadership().guard().unwrap().fence, first);
    let other = old.turn(old_id).await.unwrap();
    assert!(
        matches!(other, ElectionOutcome::OtherLeader { .. }),
        "{other:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_the_lock_taken_demotes_at_once() {
    let store = MemoryStore::new();
    let (mut leader, id) = candidate(&store);
    let term = elected(&mut leader, id).await;
    let owner = Name::new("owner", id.to_string()).unwrap();
    let lock = Election::lock_of(&role()).unwrap();
    let locks: SharedStore = Arc::new(store);
    locks.locks().release(&lock, &owner, term).await.unwrap();
    assert_eq!(leader.turn(id).await.unwrap(), ElectionOutcome::Conflict);
    assert!(!leader.leadership().is_leader());
    assert!(elected(&mut leader, id).await > term);
}

#[tokio::test(start_paused = true)]
async fn an_election_whose_answer_was_lost_is_won_at_the_next_turn() {
    let lost = AtomicBool::new(true);
    let store = MemoryStore::new().with_faults(move |operation| {
        match operation == "acquire" && lost.swap(false, Ordering::SeqCst) {
            true => Fault::ErrorAfterCommit,
            false => Fault::None,
        }
    });
    let (mut leader, id) = candidate(&store);
    leader.turn(id).await.unwrap_err();
    assert!(!leader.leadership().is_leader());
    let taken = store.list_locks(None, 1).await.unwrap();
    assert_eq!(elected(&mut leader, id).await, taken[0].1.fence);
}

#[tokio::test(start_paused = true)]
async fn who_gives_a_role_up_is_followed_at_the_next_turn() {
    let store = MemoryStore::new();
    let ((mut a, a_id), (mut b, b_id)) = (candidate(&store), candidate(&store));
    let first = elected(&mut a, a_id).await;
    let waiting = b.turn(b_id).await.unwrap();
    assert!(b.next_turn(&waiting) <= timings().heartbeat);
    a.resign().await.unwrap();
    assert!(!a.leadership().is_leader());
    assert!(elected(&mut b, b_id).await > first);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_takes_effect_late_frees_no_later_tenure() {
    let store = MemoryStore::new();
    let away = Arc::new(AtomicBool::new(false));
    let faulty = store.clone().with_faults({
        let away = Arc::clone(&away);
        move |operation| match operation {
            "release" if away.load(Ordering::SeqCst) => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        }
    });
    let (mut election, owner) = candidate(&faulty);
    let resigned = elected(&mut election, owner).await;
    away.store(true, Ordering::SeqCst);
    election.resign().await.unwrap_err();
    election.turn(owner).await.unwrap_err();
    assert!(!election.leadership().is_leader());
    away.store(false, Ordering::SeqCst);
    let again = elected(&mut election, owner).await;
    assert!(again > resigned);
    // The release of the first tenure arrives late.
    let guard = election.leadership().guard().unwrap();
    let late = store.release(&guard.lock, &guard.owner, resigned);
    let late = late.await.unwrap();
    assert_eq!(late, Fenced::Stale);
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_databases_clock_makes_no_second_leader() {
    let clock = ManualClock::running(wall_clock());
    let store = MemoryStore::with_clock(clock.clone());
    let ((mut a, a_id), (mut b, b_id)) = (candidate(&store), candidate(&store));
    let first = elected(&mut a, a_id).await;
    let led = monotonic();
    b.turn(b_id).await.unwrap();
    // Another database server takes over, and its clock is ahead.
    clock.advance(30 * SECOND);
    let second = loop {
        match b.turn(b_id).await.unwrap() {
            ElectionOutcome::Elected(term) => break term,
            ElectionOutcome::OtherLeader { leader, remaining } => {
                assert_eq!(leader.as_str(), a_id.to_string());
                assert!(remaining <= timings().ttl, "{remaining:?}");
            }
            other => panic!("{other:?}"),
        }
        sleep(timings().heartbeat / 10).await;
    };
    assert!(!a.leadership().is_leader());
    assert!(second > first && monotonic() - led >= timings().fence_timeout);
    // After an orderly resignation, the next candidate wins without a wait.
    a.turn(a_id).await.unwrap();
    b.resign().await.unwrap();
    elected(&mut a, a_id).await;
}

#[tokio::test(start_paused = true)]
async fn a_database_that_lost_the_leaders_tenure_makes_no_second_leader() {
    // The database returns to an earlier copy, in which the lock does not exist, is released, or is
    // held and about to expire.
    for before in ["nothing", "released", "held"] {
        let store = MemoryStore::new();
        let (mut first, first_id) = candidate(&store);
        if before != "nothing" {
            elected(&mut first, first_id).await;
        }
        if before == "released" {
            first.resign().await.unwrap();
        }
        let copy = store.snapshot();
        if before == "held" {
            sleep(timings().ttl - 2 * SECOND).await;
            first.resign().await.unwrap();
        }
        let ((mut a, a_id), (mut b, b_id)) = (candidate(&store), candidate(&store));
        elected(&mut a, a_id).await;
        let led = monotonic();
        b.turn(b_id).await.unwrap();
        store.rewind(&copy);
        loop {
            if let ElectionOutcome::Elected(_) = b.turn(b_id).await.unwrap() {
                break;
            }
            sleep(timings().heartbeat / 10).await;
        }
        assert!(!a.leadership().is_leader(), "{before}");
        assert!(monotonic() - led >= timings().fence_timeout, "{before}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_is_there_when_the_lock_expires() {
    let store = MemoryStore::new();
    let ((mut a, a_id), (mut b, b_id)) = (candidate(&store), candidate(&store));
    elected(&mut a, a_id).await;
    let mut waited = Duration::ZERO;
    loop {
        let outcome = b.turn(b_id).await.unwrap();
        if matches!(outcome, ElectionOutcome::Elected(_)) {
            break;
        }
        let wait = b.next_turn(&outcome);
        sleep(wait).await;
        waited += wait;
    }
    assert!(waited <= timings().ttl + MILLI, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_new_id_leaves_its_old_tenure() {
    let store = MemoryStore::new();
    let (mut leader, id) = candidate(&store);
    let first = elected(&mut leader, id).await;
    let renamed = NodeId::new();
    assert_eq!(
        leader.turn(renamed).await.unwrap(),
        ElectionOutcome::Conflict
    );
    assert!(!leader.leadership().is_leader());
    assert!(elected(&mut leader, renamed).await > first);
}

#[tokio::test(start_paused = true)]
async fn who_sits_out_leaves_the_role_to_others() {
    let store = MemoryStore::new();
    let (mut leader, id) = candidate(&store);
    elected(&mut leader, id).await;
    leader.sit_out(5 * SECOND).await.unwrap();
    assert_eq!(leader.turn(id).await.unwrap(), ElectionOutcome::Conflict);
    advance(5 * SECOND).await;
    elected(&mut leader, id).await;
}

#[tokio::test(start_paused = true)]
async fn watchers_hear_of_every_change_and_the_watchdog_tells_of_the_end() {
    let store = MemoryStore::new();
    let (mut leader, id) = candidate(&store);
    let leadership = leader.leadership().clone();
    let dog = leadership.clone();
    tokio::spawn(async move { dog.watchdog().await });
    let mut watch = leadership.watch();
    let term = elected(&mut leader, id).await;
    assert_eq!(watch.changed().await, Some(term));
    assert_eq!(watch.elected().await, term);
    let begun = monotonic();
    assert_eq!(watch.changed().await, None);
    assert_eq!(begun.elapsed(), timings().fence_timeout);
    watch.lost(term).await;
    // The candidate still holds the lock, and no other candidate led in between, so the same term
    // continues.
    assert_eq!(
        leader.turn(id).await.unwrap(),
        ElectionOutcome::AlreadyLeader(term)
    );
    assert_eq!(watch.changed().await, Some(term));
    leader.resign().await.unwrap();
    assert_eq!(watch.changed().await, None);
}

#[tokio::test]
async fn timings_and_roles_that_cannot_work_are_refused() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let mut wrong = timings();
    wrong.ttl = 9 * SECOND;
    let problem = Election::new(Arc::clone(&store), &role(), wrong).unwrap_err();
    assert!(problem.to_string().contains("ttl 9s"), "{problem}");
    let long = Name::new("role", "r".repeat(128)).unwrap();
    let problem = Election::new(store, &long, timings()).unwrap_err();
    assert_eq!(problem.field(), "role");
}
