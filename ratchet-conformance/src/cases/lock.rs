//! Locks: one holder, an exact expiry, and fences that only grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::prelude::*;

/// Returns the fencing token of an acquired lock. Panics if the lock was not acquired.
fn fence(acquired: &Acquired) -> Fence {
    match acquired {
        Acquired::Acquired { fence } => *fence,
        Acquired::Held(held) => {
            panic!("expected to acquire the free lock, found it held: {held:?}")
        }
    }
}

async fn take(node: &TestNode, ttl: Duration) -> Fence {
    fence(&node.acquire("lock", ttl).await)
}

async fn renew(node: &TestNode, fence: Fence, ttl: Duration) -> Fenced {
    let locks = node.store.locks();
    ok(locks.renew(&name("lock"), &node.label, fence, ttl).await)
}

async fn release(node: &TestNode, fence: Fence) -> Fenced {
    let locks = node.store.locks();
    ok(locks.release(&name("lock"), &node.label, fence).await)
}

fn is_held(acquired: &Acquired) -> bool {
    matches!(acquired, Acquired::Held(_))
}

cases! {
    "lock" on Cx;

    #[proves("lock.held")]
    #[needs(Clock)]
    async fn a_held_lock_names_its_holder_and_the_time_left(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let fence = take(&a, 10 * SECOND).await;
        cx.advance(3_999 * MILLI).await;
        let held = HeldLock {
            owner: a.label.clone(),
            fence,
            remaining: 6_001 * MILLI,
        };
        assert_eq!(b.acquire("lock", MINUTE).await, Acquired::Held(held));
    }

    #[proves("lock.held")]
    async fn locks_of_different_names_do_not_meet(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        for lock in ["lock", "Lock", "löck", "lock 2"] {
            fence(&a.acquire(lock, MINUTE).await);
            assert!(is_held(&b.acquire(lock, MINUTE).await));
        }
        fence(&b.acquire("another", MINUTE).await);
    }

    #[proves("lock.exclusive")]
    async fn of_many_racers_one_acquires(cx: &Cx) {
        let handles = cx.nodes(4).await;
        for round in 0..5 {
            let lock = format!("lock {round}");
            let answers = race(32, |racer| {
                let (node, lock) = (handles[racer % 4].sibling(), lock.clone());
                async move { node.acquire(&lock, MINUTE).await }
            })
            .await;
            let winners = answers.iter().filter(|answer| !is_held(answer));
            assert_eq!(winners.count(), 1);
        }
    }

    #[proves("lock.exclusive", "lock.fence")]
    #[needs(Clock)]
    async fn of_many_racers_for_an_expired_lock_one_acquires(cx: &Cx) {
        let handles = cx.nodes(4).await;
        let mut last = take(&handles[0], SECOND).await;
        for _ in 0..5 {
            cx.advance(SECOND).await;
            let answers = race(16, |racer| {
                let node = handles[racer % 4].sibling();
                async move { node.acquire("lock", SECOND).await }
            })
            .await;
            let winners: Vec<&Acquired> =
                answers.iter().filter(|answer| !is_held(answer)).collect();
            assert_eq!(winners.len(), 1);
            let won = fence(winners[0]);
            assert!(won > last, "{won:?} after {last:?}");
            last = won;
        }
    }

    #[proves("lock.expire", "time.precision", "time.clock")]
    #[needs(Clock)]
    async fn a_lock_is_free_when_its_time_has_passed_and_not_before(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        for ttl in [MILLI, 250 * MILLI, SECOND, 40 * MINUTE, 30 * DAY] {
            take(&a, ttl).await;
            cx.advance(ttl - MILLI).await;
            assert!(is_held(&b.acquire("lock", ttl).await), "{ttl:?}");
            cx.advance(MILLI).await;
            assert_eq!(a.inspect("lock").await.and_then(|lock| lock.holder), None);
            let won = take(&b, ttl).await;
            assert_eq!(release(&b, won).await, Fenced::Applied);
        }
    }

    #[proves("lock.expire", "time.precision")]
    #[needs(Clock)]
    async fn a_time_below_a_millisecond_is_a_millisecond(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        take(&a, Duration::from_nanos(1)).await;
        assert!(is_held(&b.acquire("lock", SECOND).await));
        cx.advance(MILLI).await;
        take(&b, SECOND).await;
    }

    #[proves("lock.again")]
    #[needs(Clock)]
    async fn its_owner_acquires_it_again_with_the_same_fence(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let first = take(&a, MINUTE).await;
        cx.advance(50 * SECOND).await;
        assert_eq!(take(&a, 20 * SECOND).await, first);
        cx.advance(20 * SECOND - MILLI).await;
        assert!(is_held(&b.acquire("lock", SECOND).await));
        cx.advance(MILLI).await;
        take(&b, SECOND).await;
    }

    #[proves("lock.again", "lock.renew")]
    #[needs(Clock)]
    async fn a_call_that_takes_effect_late_does_not_end_the_lock_sooner(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let held = take(&a, 20 * SECOND).await;
        // Simulates a call with a TTL of 20 s that takes effect four seconds late: 16 s are left.
        assert_eq!(take(&a, 16 * SECOND).await, held);
        assert_eq!(renew(&a, held, 16 * SECOND).await, Fenced::Applied);
        cx.advance(20 * SECOND - MILLI).await;
        assert!(is_held(&b.acquire("lock", SECOND).await));
        cx.advance(MILLI).await;
        take(&b, SECOND).await;
    }

    #[proves("lock.again", "lock.renew")]
    #[needs(Clock)]
    async fn a_lock_ends_two_times_its_new_ttl_from_now_at_the_latest(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        // The lock expires far in the future, as it would after the clock stepped back.
        for again in [false, true] {
            let held = take(&a, HOUR).await;
            if again {
                assert_eq!(take(&a, SECOND).await, held);
            } else {
                assert_eq!(renew(&a, held, SECOND).await, Fenced::Applied);
            }
            cx.advance(2 * SECOND - MILLI).await;
            assert!(is_held(&b.acquire("lock", SECOND).await));
            cx.advance(MILLI).await;
            let theirs = take(&b, SECOND).await;
            assert_eq!(release(&b, theirs).await, Fenced::Applied);
        }
    }

    #[proves("lock.fence")]
    #[needs(Clock)]
    async fn fences_grow_over_releases_and_expiries(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let mut holder = &a;
        let mut last = take(holder, SECOND).await;
        // The fence also grows when the same owner returns after the lock was free.
        for (round, next) in [&b, &b, &a, &a, &b, &a, &a, &b].into_iter().enumerate() {
            if round % 2 == 0 {
                assert_eq!(release(holder, last).await, Fenced::Applied);
            } else {
                cx.advance(SECOND).await;
            }
            let won = take(next, SECOND).await;
            assert!(won > last, "round {round}: expected the fence {won:?} to be greater than {last:?}");
            (holder, last) = (next, won);
        }
    }

    #[proves("lock.fence")]
    #[needs(Clock)]
    async fn a_fence_is_never_below_the_databases_time(cx: &Cx) {
        let node = cx.node().await;
        let mut last = 0;
        for round in 0..20 {
            if round % 4 == 0 {
                cx.advance(SECOND).await;
            }
            let before = time::to_millis(node.now().await);
            let fence = take(&node, MINUTE).await;
            let after = time::to_millis(node.now().await);
            let range = next_in_time(last, before)..=next_in_time(last, after);
            assert!(range.contains(&fence.0), "expected the fence {fence:?} in the range {range:?}");
            assert_eq!(release(&node, fence).await, Fenced::Applied);
            last = fence.0;
        }
    }

    #[proves("lock.fence")]
    async fn the_fence_survives_every_handle(cx: &Cx) {
        let node = cx.node().await;
        let first = take(&node, MINUTE).await;
        release(&node, first).await;
        drop(node);
        let node = cx.node().await;
        assert!(take(&node, MINUTE).await > first);
    }

    #[proves("lock.ttl", "errors.kind")]
    async fn a_time_of_zero_is_refused(cx: &Cx) {
        let node = cx.node().await;
        let (locks, lock) = (node.store.locks(), name("lock"));
        assert_refused(
            locks.acquire(&lock, &node.label, Duration::ZERO).await,
            "ttl",
        );
        assert_eq!(node.inspect("lock").await, None);
        let held = take(&node, MINUTE).await;
        let renewed = locks.renew(&lock, &node.label, held, Duration::ZERO).await;
        assert_refused(renewed, "ttl");
    }

    #[proves("lock.renew")]
    #[needs(Clock)]
    async fn a_renewal_counts_from_now(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let held = take(&a, 10 * SECOND).await;
        for _ in 0..5 {
            cx.advance(9 * SECOND).await;
            assert_eq!(renew(&a, held, 10 * SECOND).await, Fenced::Applied);
        }
        cx.advance(10 * SECOND - MILLI).await;
        assert!(is_held(&b.acquire("lock", SECOND).await));
        cx.advance(MILLI).await;
        take(&b, SECOND).await;
    }

    #[proves("lock.renew")]
    #[needs(Clock)]
    async fn an_expired_lock_is_not_renewed(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let held = take(&a, SECOND).await;
        cx.advance(SECOND).await;
        assert_eq!(renew(&a, held, MINUTE).await, Fenced::Stale);
        let newer = take(&b, MINUTE).await;
        assert_eq!(renew(&a, held, MINUTE).await, Fenced::Stale);
        assert_eq!(
            renew(&a, newer, MINUTE).await,
            Fenced::Stale,
            "expected a call with the right fence and the wrong owner to be refused"
        );
        assert_eq!(
            renew(&b, held, MINUTE).await,
            Fenced::Stale,
            "expected a call with the right owner and an old fence to be refused"
        );
        let before = a.inspect("lock").await;
        assert_eq!(before.map(|lock| lock.fence), Some(newer));
        assert_eq!(renew(&b, newer, MINUTE).await, Fenced::Applied);
    }

    #[proves("lock.renew")]
    async fn what_was_never_acquired_cannot_be_renewed_or_released(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(renew(&node, Fence(1), MINUTE).await, Fenced::Stale);
        assert_eq!(release(&node, Fence(1)).await, Fenced::Stale);
        assert_eq!(node.inspect("lock").await, None);
    }

    #[proves("lock.release")]
    async fn a_released_lock_is_free_at_once(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let held = take(&a, HOUR).await;
        assert_eq!(release(&a, held).await, Fenced::Applied);
        take(&b, HOUR).await;
        assert_eq!(release(&a, held).await, Fenced::Stale);
    }

    #[proves("lock.release", "lock.renew")]
    async fn a_released_lock_is_not_its_old_owners_any_more(cx: &Cx) {
        let node = cx.node().await;
        let held = take(&node, HOUR).await;
        release(&node, held).await;
        assert_eq!(release(&node, held).await, Fenced::Stale);
        assert_eq!(renew(&node, held, HOUR).await, Fenced::Stale);
    }

    #[proves("lock.release")]
    async fn only_its_owner_with_its_fence_releases_it(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let held = take(&a, HOUR).await;
        assert_eq!(release(&b, held).await, Fenced::Stale);
        assert_eq!(release(&a, Fence(held.0 + 1)).await, Fenced::Stale);
        assert_eq!(release(&a, Fence(held.0 - 1)).await, Fenced::Stale);
        assert!(is_held(&b.acquire("lock", HOUR).await));
        assert_eq!(renew(&a, held, HOUR).await, Fenced::Applied);
    }

    #[proves("lock.release")]
    #[needs(Clock)]
    async fn an_expired_lock_cannot_be_released(cx: &Cx) {
        let node = cx.node().await;
        let held = take(&node, SECOND).await;
        cx.advance(SECOND).await;
        assert_eq!(release(&node, held).await, Fenced::Stale);
    }

    #[proves("lock.inspect")]
    #[needs(Clock)]
    async fn looking_at_a_lock_does_not_touch_it(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(b.inspect("lock").await, None);
        let held = take(&a, MINUTE).await;
        cx.advance(20 * SECOND).await;
        let holder = HeldLock {
            owner: a.label.clone(),
            fence: held,
            remaining: 40 * SECOND,
        };
        let expected = LockInfo {
            fence: held,
            holder: Some(holder),
            holder_gone: false,
            expired_for: None,
        };
        for _ in 0..2 {
            assert_eq!(b.inspect("lock").await, Some(expected.clone()));
        }
        release(&a, held).await;
        let free = LockInfo {
            fence: held,
            holder: None,
            holder_gone: false,
            expired_for: None,
        };
        assert_eq!(b.inspect("lock").await, Some(free));
    }

    #[proves("lock.inspect")]
    #[needs(Clock)]
    async fn an_abandoned_lock_says_how_long_ago_it_expired(cx: &Cx) {
        let node = cx.node().await;
        let fence = take(&node, MINUTE).await;
        cx.advance(MINUTE).await;
        let expired = |ago| LockInfo {
            fence,
            holder: None,
            holder_gone: false,
            expired_for: Some(ago),
        };
        assert_eq!(node.inspect("lock").await, Some(expired(Duration::ZERO)));
        cx.advance(90_001 * MILLI).await;
        assert_eq!(node.inspect("lock").await, Some(expired(90_001 * MILLI)));
        let held = take(&node, MINUTE).await;
        release(&node, held).await;
        let released = node.inspect("lock").await.expect("it was taken");
        assert_eq!(released.expired_for, None);
    }

    #[proves("lock.exclusive", "lock.fence")]
    async fn holders_never_overlap_while_the_lock_changes_hands(cx: &Cx) {
        let handles = cx.nodes(4).await;
        let holders = Arc::new(AtomicUsize::new(0));
        let tenures = race(8, |racer| {
            let (node, holders) = (handles[racer % 4].sibling(), Arc::clone(&holders));
            async move {
                let mut fences = Vec::new();
                while fences.len() < 5 {
                    let Acquired::Acquired { fence } = node.acquire("lock", HOUR).await else {
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let others = holders.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(others, 0, "expected one holder of the lock at a time, found two");
                    tokio::task::yield_now().await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(release(&node, fence).await, Fenced::Applied);
                    fences.push(fence);
                }
                fences
            }
        })
        .await;
        for fences in &tenures {
            assert!(fences.is_sorted(), "{fences:?}");
        }
        let mut all: Vec<Fence> = tenures.into_iter().flatten().collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 40, "expected every fence once, found one twice");
    }
    #[proves("lock.list")]
    #[needs(Clock)]
    async fn locks_are_listed_by_name_as_each_is(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(a.list_locks(None, 10).await, []);
        let mut all = ["lock", "leader/b", "Lock", "a b", "ä", "日", "leader/a"];
        for (of, lock) in all.into_iter().enumerate() {
            let ttl = if of % 2 == 0 { HOUR } else { SECOND };
            fence(&a.acquire(lock, ttl).await);
        }
        release(&a, Fence(1)).await;
        cx.advance(2 * SECOND).await;
        all.sort_unstable();
        let mut expected = Vec::new();
        for lock in all {
            let found = b.inspect(lock).await.expect("it was taken");
            expected.push((name(lock), found));
        }
        assert_eq!(b.list_locks(None, 10).await, expected);
        assert_eq!(b.list_locks(None, 3).await, expected[..3]);
        assert_eq!(b.list_locks(Some("leader/"), 2).await, expected[2..4]);
        assert_eq!(b.list_locks(Some("leader/a"), 2).await, expected[3..5]);
        assert_eq!(b.list_locks(Some("日"), 10).await, []);
    }

    #[proves("lock.list")]
    async fn names_of_any_characters_are_listed_by_their_bytes(cx: &Cx) {
        let node = cx.node().await;
        let mut all = [
            "a", "a～", "a🦀", "a\u{E000}b", "a𝄞b", "a\u{D7FF}", "z", "～", "🦀", "🦀～", "🦀𝄞",
            "\u{E000}", "\u{FFFD}", "\u{10000}", "\u{10FFFF}",
        ];
        for lock in all {
            fence(&node.acquire(lock, HOUR).await);
        }
        all.sort_unstable();
        for limit in [1, 4, 100] {
            let mut walked: Vec<Name> = Vec::new();
            let mut walk = Walk::new();
            loop {
                let last = walk.on(walked.last().cloned());
                let page = node.list_locks(last.as_ref().map(Name::as_str), limit).await;
                let is_last = page.len() < limit;
                walked.extend(page.into_iter().map(|(name, _)| name));
                if is_last {
                    break;
                }
            }
            assert_eq!(walked, all, "unexpected locks in pages of {limit}");
        }
    }

    #[proves("lock.list", "errors.poison")]
    #[needs(Vandal)]
    async fn a_lock_that_cannot_be_read_is_left_out_of_the_list(cx: &Cx) {
        let node = cx.node().await;
        for lock in ["a", "bad", "c"] {
            fence(&node.acquire(lock, HOUR).await);
        }
        if let Err(error) = cx.vandal().spoil_lock(&name("bad")).await {
            panic!("the fixture could not damage the lock: {error}");
        }
        let listed = async |after, limit| -> Vec<Name> {
            let locks = node.list_locks(after, limit).await;
            locks.into_iter().map(|(name, _)| name).collect()
        };
        for limit in [2, 3, 4, 5] {
            assert_eq!(listed(None, limit).await, ["a", "c"], "{limit}");
        }
        assert_eq!(listed(None, 1).await, ["a"]);
        assert_eq!(listed(Some("a"), 1).await, ["c"]);
        assert_eq!(listed(Some("c"), 1).await, [""; 0]);
    }

    #[proves("lock.damaged")]
    #[needs(Vandal)]
    async fn a_lock_that_cannot_be_read_is_acquired_by_no_owner(cx: &Cx) {
        let (holder, other) = (cx.node().await, cx.node().await);
        fence(&holder.acquire("bad", HOUR).await);
        if let Err(error) = cx.vandal().spoil_lock(&name("bad")).await {
            panic!("the fixture could not damage the lock: {error}");
        }
        for node in [&other, &holder] {
            let locks = node.store.locks();
            let answer = locks.acquire(&name("bad"), &node.label, HOUR).await;
            let kind = answer.expect_err("the lock should not be acquired").kind();
            assert_eq!(kind, StoreErrorKind::Corrupt);
        }
    }

    #[proves("lock.list")]
    async fn a_list_of_no_locks_is_refused(cx: &Cx) {
        let node = cx.node().await;
        let refused = node.store.locks().list_locks(None, 0).await;
        assert_refused(refused, "limit");
    }
}
