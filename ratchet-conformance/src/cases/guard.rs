//! Guards: a guarded write takes effect only while its leader holds the lock.

use std::sync::Arc;

use ratchet_core::cluster::{Election, ElectionOutcome, LeaderTimings};

use super::prelude::*;

const LOCK: &str = "lock";

async fn tenure(node: &TestNode, ttl: Duration) -> Guard {
    match node.acquire(LOCK, ttl).await {
        Acquired::Acquired { fence } => Guard {
            lock: name(LOCK),
            owner: node.label.clone(),
            fence,
        },
        Acquired::Held(held) => {
            panic!("expected to acquire the free lock, found it held: {held:?}")
        }
    }
}

async fn release(node: &TestNode, guard: &Guard) {
    let locks = node.store.locks();
    let released = ok(locks.release(&guard.lock, &guard.owner, guard.fence).await);
    assert_eq!(released, Fenced::Applied);
}

/// Purges up to 10 cancelled jobs that ended at least 1 ms ago. If `guard` is stale, the store
/// changes nothing and returns `Stale`.
async fn purge(node: &TestNode, guard: &Guard) -> Guarded<u64> {
    let request = PurgeRequest::new(JobState::Cancelled, MILLI, 10).guarded(Some(guard.clone()));
    ok(node.jobs().purge(&request).await)
}

/// Marks nodes as dead that have sent no heartbeat for a minute. If `guard` is stale, the store
/// changes nothing and returns `Stale`.
async fn sweep(node: &TestNode, guard: &Guard) -> Guarded<SweptNodes> {
    let sweep = NodeSweep::new(MINUTE, HOUR).guarded(Some(guard.clone()));
    ok(node.store.nodes().sweep_nodes(&sweep).await)
}

/// Checks that a purge and a node sweep with the stale guard `guard` change nothing. First creates
/// a job that can be purged and a node that can be marked as dead.
async fn assert_stale(cx: &Cx, node: &TestNode, guard: &Guard) {
    let silent = cx.node().await;
    silent.beat().await;
    let old = node.add(job()).await;
    node.act(old, JobAction::Cancel).await;
    cx.advance(30 * MINUTE).await;
    assert_eq!(purge(node, guard).await, Guarded::Stale, "{guard:?}");
    assert!(node.find(old).await.is_some());
    assert_eq!(sweep(node, guard).await, Guarded::Stale, "{guard:?}");
    let row = node
        .node(silent.id)
        .await
        .expect("the node should be stored");
    assert_eq!(row.status, NodeStatus::Active);
}

fn candidate(node: &TestNode, role: &str) -> Election {
    let timings = LeaderTimings::of_ttl(HOUR);
    Election::new(Arc::clone(&node.store), &name(role), timings).expect("the timings work")
}

cases! {
    "guard" on Cx;

    #[proves("guard.write")]
    #[needs(Clock, Guards)]
    async fn writes_land_in_their_tenure(cx: &Cx) {
        let node = cx.node().await;
        let silent = cx.node().await;
        silent.beat().await;
        let old = node.add(job()).await;
        node.act(old, JobAction::Cancel).await;
        cx.advance(30 * MINUTE).await;
        let guard = tenure(&node, MINUTE).await;
        cx.advance(59_999 * MILLI).await;
        assert_eq!(purge(&node, &guard).await, Guarded::Done(1));
        assert_eq!(node.find(old).await, None);
        let swept = sweep(&node, &guard).await.done().expect("it lands");
        assert_eq!(swept.died, [silent.id]);
    }

    #[proves("guard.write")]
    #[needs(Clock, Guards)]
    async fn writes_of_a_tenure_that_never_was_are_stale(cx: &Cx) {
        let (node, other) = (cx.node().await, cx.node().await);
        let never = Guard {
            lock: name("never taken"),
            owner: node.label.clone(),
            fence: Fence(1),
        };
        assert_stale(cx, &node, &never).await;
        let guard = tenure(&node, DAY).await;
        let later = Guard {
            fence: Fence(guard.fence.0 + 1),
            ..guard.clone()
        };
        assert_stale(cx, &node, &later).await;
        let anothers = Guard {
            owner: other.label.clone(),
            ..guard
        };
        assert_stale(cx, &node, &anothers).await;
    }

    #[proves("guard.write")]
    #[needs(Clock, Guards)]
    async fn writes_of_a_tenure_that_was_given_up_are_stale(cx: &Cx) {
        let node = cx.node().await;
        let guard = tenure(&node, DAY).await;
        release(&node, &guard).await;
        assert_stale(cx, &node, &guard).await;
    }

    #[proves("guard.write", "lock.expire")]
    #[needs(Clock, Guards)]
    async fn writes_of_an_expired_tenure_are_stale_even_without_a_successor(cx: &Cx) {
        let node = cx.node().await;
        let guard = tenure(&node, 30 * MINUTE).await;
        assert_stale(cx, &node, &guard).await;
    }

    #[proves("guard.write", "lock.fence")]
    #[needs(Clock, Guards)]
    async fn writes_of_a_deposed_leader_are_stale_and_its_successors_land(cx: &Cx) {
        let (old, new) = (cx.node().await, cx.node().await);
        let deposed = tenure(&old, MINUTE).await;
        cx.advance(MINUTE).await;
        let guard = tenure(&new, DAY).await;
        assert!(guard.fence > deposed.fence);
        assert_stale(cx, &old, &deposed).await;
        assert_eq!(purge(&new, &guard).await, Guarded::Done(1));
    }

    #[proves("guard.write", "lock.fence")]
    #[needs(Clock, Guards)]
    async fn a_leader_elected_again_writes_in_its_new_term_only(cx: &Cx) {
        let node = cx.node().await;
        let first = tenure(&node, MINUTE).await;
        cx.advance(MINUTE).await;
        let second = tenure(&node, DAY).await;
        assert_stale(cx, &node, &first).await;
        assert_eq!(purge(&node, &second).await, Guarded::Done(1));
    }

    #[proves("lock.exclusive", "lock.fence")]
    async fn of_many_candidates_one_is_elected_and_the_others_learn_who(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let mut terms = Vec::new();
        for _ in 0..3 {
            let turns = race(4, |racer| {
                let node = nodes[racer].sibling();
                async move {
                    let mut election = candidate(&node, "role");
                    let outcome = election.turn(node.id).await;
                    (ok(outcome), node.id, election)
                }
            })
            .await;
            let mut leaders = turns.iter().filter_map(|(outcome, id, _)| match outcome {
                ElectionOutcome::Elected(term) => Some((*id, *term)),
                _ => None,
            });
            let (leader, term) = leaders.next().expect("one node should be elected");
            assert_eq!(leaders.next(), None, "expected one elected node, found two");
            terms.push(term);
            let mut last = None;
            for (outcome, id, mut election) in turns {
                if let ElectionOutcome::OtherLeader { leader: named, .. } = &outcome {
                    assert_eq!(*named, leader.to_string().as_str());
                }
                assert_eq!(election.leadership().is_leader(), id == leader);
                let again = ok(election.turn(id).await);
                assert_eq!(again == ElectionOutcome::AlreadyLeader(term), id == leader);
                if id == leader {
                    last = Some(election);
                }
            }
            let mut last = last.expect("one of the nodes should lead");
            ok(last.resign().await);
            assert!(!last.leadership().is_leader());
        }
        assert!(terms.is_sorted_by(|one, other| one < other), "{terms:?}");
    }

    #[proves("guard.write", "lock.renew", "lock.fence")]
    #[needs(Clock, Guards)]
    async fn a_leader_that_slept_through_its_term_can_change_nothing(cx: &Cx) {
        let (old, new) = (cx.node().await, cx.node().await);
        let (mut sleeper, mut successor) = (candidate(&old, "role"), candidate(&new, "role"));
        let ElectionOutcome::Elected(first) = ok(sleeper.turn(old.id).await) else {
            panic!("the only candidate should be elected");
        };
        // The old leader's local clock stood still, so the old leader considers itself the leader
        // until it calls the store.
        cx.advance(HOUR).await;
        let ElectionOutcome::Elected(second) = ok(successor.turn(new.id).await) else {
            panic!("the successor should be elected");
        };
        assert!(second > first);
        assert_eq!(sleeper.leadership().term(), Some(first));
        let guard = sleeper.leadership().guard().expect("it led");
        assert_stale(cx, &old, &guard).await;
        assert_eq!(ok(sleeper.turn(old.id).await), ElectionOutcome::Conflict);
        assert!(!sleeper.leadership().is_leader());
    }

    #[proves("guard.write", "lock.expire", "lock.renew", "time.clock")]
    #[needs(Clock, Guards)]
    async fn after_a_step_forward_the_old_leader_stops_at_its_next_renewal(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let (mut old, mut new) = (candidate(&a, "role"), candidate(&b, "role"));
        let ElectionOutcome::Elected(first) = ok(old.turn(a.id).await) else {
            panic!("the only candidate should be elected");
        };
        // The clock steps forward by the lock's TTL, so the lock has expired and the new candidate
        // need not wait.
        cx.proving(["lock.expire", "time.clock"]);
        cx.advance(HOUR).await;
        let ElectionOutcome::Elected(second) = ok(new.turn(b.id).await) else {
            panic!("the new candidate should be elected");
        };
        assert!(second > first);
        cx.proving(["guard.write"]);
        // Two nodes lead: the old leader trusts its local clock, which did not step.
        assert!(old.leadership().is_leader() && new.leadership().is_leader());
        let guards = [&old, &new].map(|one| one.leadership().guard().expect("it led"));
        assert_eq!(purge(&a, &guards[0]).await, Guarded::Stale);
        assert_eq!(purge(&b, &guards[1]).await, Guarded::Done(0));
        cx.proving(["lock.renew"]);
        assert_eq!(ok(old.turn(a.id).await), ElectionOutcome::Conflict);
        assert!(!old.leadership().is_leader());
        let other = ok(old.turn(a.id).await);
        assert!(matches!(other, ElectionOutcome::OtherLeader { .. }), "{other:?}");
    }

    #[proves("guard.write", "lock.held", "lock.renew", "time.clock")]
    #[needs(Clock, Guards)]
    async fn after_a_step_back_the_leader_leads_on_and_its_lock_lasts_longer(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let (mut leader, mut other) = (candidate(&a, "role"), candidate(&b, "role"));
        let ElectionOutcome::Elected(term) = ok(leader.turn(a.id).await) else {
            panic!("the only candidate should be elected");
        };
        let held = |turn| match turn {
            ElectionOutcome::OtherLeader { remaining, .. } => remaining,
            turn => panic!("expected the lock to be held by the other node, found {turn:?}"),
        };
        cx.proving(["lock.held", "time.clock"]);
        cx.set_back(30 * MINUTE).await;
        assert_eq!(held(ok(other.turn(b.id).await)), 90 * MINUTE);
        cx.proving(["guard.write"]);
        let guard = leader.leadership().guard().expect("it leads");
        assert_eq!(purge(&a, &guard).await, Guarded::Done(0));
        cx.proving(["lock.renew"]);
        // If the lock would last longer than two TTLs from now, a renewal shortens it to two TTLs.
        // This first renewal does not change the lock.
        let renewed = ok(leader.turn(a.id).await);
        assert_eq!(renewed, ElectionOutcome::AlreadyLeader(term));
        assert_eq!(held(ok(other.turn(b.id).await)), 90 * MINUTE);
        cx.set_back(HOUR).await;
        let renewed = ok(leader.turn(a.id).await);
        assert_eq!(renewed, ElectionOutcome::AlreadyLeader(term));
        assert_eq!(held(ok(other.turn(b.id).await)), 2 * HOUR);
        cx.proving(["lock.held", "time.clock"]);
        // The leader does not renew the lock after the clock steps back, so the lock lasts longer
        // by the size of the step.
        cx.set_back(30 * MINUTE).await;
        cx.advance(150 * MINUTE - MILLI).await;
        assert_eq!(held(ok(other.turn(b.id).await)), MILLI);
        cx.advance(MILLI).await;
        let mut other = candidate(&b, "role");
        let elected = ok(other.turn(b.id).await);
        assert!(matches!(elected, ElectionOutcome::Elected(_)), "{elected:?}");
    }

    #[proves("lock.inspect")]
    #[needs(Clock)]
    async fn a_role_given_up_is_free_at_once_and_one_abandoned_after_the_delay(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let mut leader = candidate(&a, "role");
        let patient = || candidate(&b, "role").takeover_delay(MINUTE);
        ok(leader.turn(a.id).await);
        let held = ok(patient().turn(b.id).await);
        assert!(matches!(held, ElectionOutcome::OtherLeader { .. }), "{held:?}");
        cx.advance(HOUR).await;
        let mut patient = patient();
        assert_eq!(ok(patient.turn(b.id).await), ElectionOutcome::Conflict);
        cx.advance(59_999 * MILLI).await;
        assert_eq!(ok(patient.turn(b.id).await), ElectionOutcome::Conflict);
        cx.advance(MILLI).await;
        let elected = ok(patient.turn(b.id).await);
        assert!(matches!(elected, ElectionOutcome::Elected(_)), "{elected:?}");
        ok(patient.resign().await);
        let mut other = candidate(&a, "role").takeover_delay(MINUTE);
        let elected = ok(other.turn(a.id).await);
        assert!(matches!(elected, ElectionOutcome::Elected(_)), "{elected:?}");
    }
}
