//! Time: the store uses only the database's clock, and is exact to the millisecond.

use ratchet_core::memory::ManualClock;

use super::prelude::*;

cases! {
    "time" on Cx;

    #[proves("time.read")]
    async fn the_databases_time_never_goes_back(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let mut last = nodes[0].now().await;
        for round in 0..50 {
            let now = nodes[round % 2].now().await;
            assert!(last <= now, "{now} after {last}");
            last = now;
        }
    }

    #[proves("time.read", "durability.restart")]
    #[needs(MachineClock, Restart)]
    async fn the_time_does_not_go_back_when_the_machines_clock_does(cx: &Cx) {
        let machine = ManualClock::new(time::from_millis(1_790_000_000_123));
        let mut node = cx.node_with(machine.clone()).await;
        for restarts in [false, true] {
            let first = node.add(job()).await;
            let before = node.now().await;
            machine.set_back(HOUR);
            if restarts {
                cx.end_processes([node]).await;
                node = cx.node_with(machine.clone()).await;
            }
            let after = node.now().await;
            assert!(before <= after, "{after} after {before}");
            let second = node.add(job()).await;
            assert!(before <= node.get(second).await.created_at);
            assert_eq!(node.claim_ids(2).await, [first, second]);
            machine.advance(2 * HOUR);
            assert!(before < node.now().await);
        }
    }

    #[proves("time.read")]
    async fn the_time_read_agrees_with_the_times_written(cx: &Cx) {
        let node = cx.node().await;
        for _ in 0..10 {
            let before = node.now().await;
            let id = node.add(job()).await;
            let token = node.take().await;
            node.beat().await;
            node.succeed(token).await;
            let after = node.now().await;
            let stored = node.get(id).await;
            let ended = &node.history(id).await[0];
            let finished = stored.finished_at.unwrap_or_default();
            let row = node.node(node.id).await.expect("it has beaten");
            let written = [
                stored.created_at,
                stored.run_at,
                ended.claimed_at,
                row.last_seen,
                ended.ended_at,
                finished,
            ];
            assert!(written.is_sorted(), "{written:?}");
            assert!(before <= written[0] && finished <= after);
        }
    }

    #[proves("time.clock")]
    #[needs(Clock)]
    async fn the_nodes_clock_never_matters(cx: &Cx) {
        // The database's clock differs from this process's clock by years, in both directions.
        let node = cx.node().await;
        for back in [false, true] {
            if back {
                cx.set_back(7_000 * DAY).await;
            } else {
                cx.advance(3_000 * DAY).await;
            }
            let now = node.now().await;
            let due = node.add(job()).await;
            let later = node.add(job().delay(MINUTE)).await;
            assert_eq!(node.claim_ids(10).await, [due]);
            assert_eq!(node.get(due).await.claimed_at, Some(now));
            node.alive(node.token(due, 1).await).await;
            node.beat().await;
            assert_eq!(node.reclaim(&reclaim()).await, []);
            node.succeed(node.token(due, 1).await).await;
            assert_eq!(node.get(due).await.finished_at, Some(now));
            node.act(later, JobAction::Cancel).await;
            assert_eq!(node.purge(JobState::Cancelled, MILLI, 10).await, 0);
        }
    }

    #[proves("time.clock", "claim.exclusive", "reclaim.live")]
    #[needs(Clock)]
    async fn a_clock_set_back_takes_no_claim_and_gives_none_twice(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.beat().await;
        let running = a.add(job().stall_timeout(MINUTE).timeout(MINUTE)).await;
        let token = a.take().await;
        a.alive(token).await;
        cx.set_back(5 * SECOND).await;
        cx.proving(["time.clock", "reclaim.live"]);
        assert_eq!(b.reclaim(&reclaim()).await, []);
        cx.proving(["claim.exclusive", "time.clock"]);
        assert!(b.claim(10).await.is_empty());
        cx.proving(["time.clock", "reclaim.live"]);
        a.alive(token).await;
        a.beat().await;
        cx.advance(5 * SECOND).await;
        assert_eq!(b.reclaim(&reclaim()).await, []);
        a.succeed(token).await;
        let stored = b.get(running).await;
        assert_eq!((stored.state, stored.claim_seq), (JobState::Succeeded, 1));
    }

    #[proves("time.clock", "lock.held")]
    #[needs(Clock)]
    async fn a_clock_set_back_frees_no_lock(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.acquire("lock", 10 * SECOND).await;
        cx.set_back(5 * SECOND).await;
        assert!(matches!(b.acquire("lock", SECOND).await, Acquired::Held(_)));
        cx.advance(15 * SECOND).await;
        assert!(matches!(
            b.acquire("lock", SECOND).await,
            Acquired::Acquired { .. }
        ));
    }

    #[proves("time.precision")]
    #[needs(Clock)]
    async fn every_time_is_kept_to_the_millisecond(cx: &Cx) {
        let node = cx.node().await;
        let fine = Duration::from_micros(1_001);
        let kept = 2 * MILLI;
        cx.advance(777 * MILLI).await;
        let created_at = node.now().await;
        assert_eq!(time::from_millis(time::to_millis(created_at)), created_at);
        let id = node
            .add(job().delay(fine).timeout(fine).stall_timeout(fine))
            .await;
        let stored = node.get(id).await;
        assert_eq!(stored.created_at, created_at);
        assert_eq!(stored.run_at, time::add(created_at, kept));
        assert_eq!(
            (stored.spec.timeout, stored.spec.stall_timeout),
            (Some(kept), Some(kept))
        );
        cx.advance(MILLI).await;
        assert!(node.claim(1).await.is_empty());
        cx.advance(MILLI).await;
        let token = node.take().await;
        let settlement = Settlement::new(token, retry(fine)).ran_for(fine);
        node.settle_all(&[settlement]).await;
        assert_eq!(node.get(id).await.run_at, time::add(node.now().await, kept));
        assert_eq!(node.history(id).await[0].ran_for, Some(kept));
    }

    #[proves("time.precision")]
    async fn due_times_a_millisecond_apart_are_apart(cx: &Cx) {
        let node = cx.node().await;
        let at = |millis: i64| job().run_at(time::from_millis(1_700_000_000_000 + millis));
        let all = node
            .add_all(&[at(3), at(1), at(2), at(999), at(1_000)])
            .await;
        let request = node.request(10).aging(Aging::OFF);
        let expected = [all[1], all[2], all[0], all[3], all[4]];
        assert_eq!(ids(&node.claim_with(&request).await), expected);
    }

    #[proves("time.precision")]
    async fn very_long_durations_are_kept(cx: &Cx) {
        let node = cx.node().await;
        let long = 300 * 365 * DAY;
        let id = node.add(job().timeout(long).stall_timeout(long)).await;
        let stored = node.get(id).await;
        assert_eq!(
            (stored.spec.timeout, stored.spec.stall_timeout),
            (Some(long), Some(long))
        );
        let token = node.take().await;
        node.alive(token).await;
        node.beat().await;
        let patient = reclaim()
            .dead_after(long)
            .start_timeout(long)
            .overdue_after(long);
        assert_eq!(node.reclaim(&patient).await, []);
        node.settle_all(&[Settlement::new(token, retry(long)).ran_for(long)])
            .await;
        assert_eq!(node.history(id).await[0].ran_for, Some(long));
        assert!(node.claim(1).await.is_empty());
    }
}
