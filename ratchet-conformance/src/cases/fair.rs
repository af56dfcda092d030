//! Fair keys: the keys of a route and priority take turns.

use std::collections::HashMap;

use ratchet_core::OnConflict;
use ratchet_core::fair::WOKEN_BY_A_CLAIM;

use super::prelude::*;

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

/// Returns this many jobs of a key.
fn flood(key: &str, count: usize) -> Vec<NewJob> {
    (0..count).map(|_| of(key)).collect()
}

/// Claims jobs one by one, and returns their fair keys.
async fn keys(node: &TestNode, count: usize) -> Vec<String> {
    let mut keys = Vec::new();
    for _ in 0..count {
        let job = node.claim_one().await.claim.token.job;
        let key = node.get(job).await.spec.fair_key;
        keys.push(key.map_or_else(String::new, |key| key.name().to_string()));
    }
    keys
}

/// Claims jobs one by one, and returns their ids.
async fn order(node: &TestNode, count: usize) -> Vec<JobId> {
    let mut order = Vec::new();
    for _ in 0..count {
        order.extend(node.claim_ids(1).await);
    }
    order
}

cases! {
    "fair" on Cx;

    #[proves("fair.turn", "fair.bound")]
    #[needs(FairKeys)]
    async fn a_single_job_behind_a_flood_is_the_next(cx: &Cx) {
        let node = cx.node().await;
        node.add_all(&flood("a", 200)).await;
        let single = node.add(of("b")).await;
        let claimed = node.claim_ids(2).await;
        assert!(claimed.contains(&single), "{claimed:?}");
        assert_eq!(node.get(single).await.spec.fair_key, of("b").spec().fair_key);
    }

    #[proves("fair.turn", "fair.bound")]
    #[needs(FairKeys)]
    async fn keys_take_turns(cx: &Cx) {
        let node = cx.node().await;
        for key in ["a", "b", "c"] {
            node.add_all(&flood(key, 8)).await;
        }
        let keys = keys(&node, 24).await;
        for window in keys.windows(4) {
            let repeated = |key| window.iter().filter(|other| *other == key).count();
            assert!(window.iter().all(|key| repeated(key) <= 2), "{keys:?}");
        }
        for key in ["a", "b", "c"] {
            let first = keys[..15].iter().filter(|other| *other == key).count();
            assert!((4..=6).contains(&first), "{keys:?}");
        }
    }

    #[proves("fair.weight")]
    #[needs(FairKeys)]
    async fn a_key_of_weight_two_has_two_turns(cx: &Cx) {
        let node = cx.node().await;
        let heavy: Vec<NewJob> = (0..20).map(|_| job().weighted_fair_key("h", 2.0)).collect();
        node.add_all(&heavy).await;
        node.add_all(&flood("l", 20)).await;
        let keys = keys(&node, 18).await;
        let heavy = keys.iter().filter(|key| *key == "h").count();
        assert!((11..=13).contains(&heavy), "{keys:?}");
    }

    #[proves("fair.idle")]
    #[needs(FairKeys)]
    async fn a_key_saves_up_no_turns_and_owes_none(cx: &Cx) {
        let node = cx.node().await;
        let cancelled = node.add_all(&flood("idle", 50)).await;
        node.add_all(&flood("busy", 40)).await;
        for job in cancelled {
            node.act(job, JobAction::Cancel).await;
        }
        keys(&node, 10).await;
        node.add_all(&flood("idle", 20)).await;
        let keys = keys(&node, 20).await;
        let idle = keys.iter().filter(|key| *key == "idle").count();
        assert!((9..=11).contains(&idle), "{keys:?}");
    }

    #[proves("fair.due")]
    #[needs(FairKeys, Clock)]
    async fn delayed_and_retried_jobs_take_part_when_they_are_due(cx: &Cx) {
        let node = cx.node().await;
        let token = {
            node.add(of("b")).await;
            node.take().await
        };
        let delayed = node.add(of("c").delay(Duration::from_secs(60))).await;
        node.add_all(&flood("a", 50)).await;
        assert_eq!(keys(&node, 3).await, ["a", "a", "a"]);
        let error = "it failed".to_owned();
        let retry = Outcome::Retry { error, delay: Duration::from_secs(30) };
        node.settle(token, retry).await;
        cx.advance(Duration::from_secs(31)).await;
        let retried = keys(&node, 3).await;
        assert!(retried.contains(&"b".to_owned()), "{retried:?}");
        cx.advance(Duration::from_secs(31)).await;
        let later = keys(&node, 3).await;
        assert!(later.contains(&"c".to_owned()), "{later:?}");
        assert_eq!(node.state(delayed).await, JobState::Running);
    }

    #[proves("fair.due")]
    #[needs(FairKeys, Clock)]
    async fn jobs_that_wake_together_get_turns_in_the_order_of_their_due_times(cx: &Cx) {
        let node = cx.node().await;
        let later = node.add(of("a").delay(Duration::from_secs(20))).await;
        let sooner = node.add(of("a").delay(Duration::from_secs(10))).await;
        cx.advance(Duration::from_secs(30)).await;
        assert_eq!(node.claim_ids(1).await, [sooner]);
        assert_eq!(node.claim_ids(1).await, [later]);
    }

    #[proves("fair.due", "fair.turn")]
    #[needs(FairKeys, Clock)]
    async fn a_job_that_wakes_behind_many_of_another_key_waits_for_one_claim_more(cx: &Cx) {
        let node = cx.node().await;
        let delayed = |key: &str| of(key).delay(SECOND);
        let many: Vec<NewJob> = (0..WOKEN_BY_A_CLAIM).map(|_| delayed("many")).collect();
        node.add_all(&many).await;
        cx.advance(MILLI).await;
        let last = node.add(delayed("last")).await;
        cx.advance(SECOND).await;
        let first = node.claim_ids(1).await;
        // A job that is enqueued now has a turn at once.
        let new = node.add(of("new")).await;
        let next = node.claim_ids(3).await;
        assert!(next.contains(&new) && next.contains(&last), "{first:?} {next:?}");
    }

    #[proves("fair.due", "fair.turn")]
    #[needs(FairKeys)]
    async fn a_retried_job_goes_behind_the_others_of_its_key(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add_all(&flood("a", 2)).await;
        let other = node.add(of("b")).await;
        let token = node.take().await;
        assert_eq!(token.job, first[0]);
        let (error, delay) = ("it failed".to_owned(), Duration::ZERO);
        node.settle(token, Outcome::Retry { error, delay }).await;
        let order = order(&node, 3).await;
        assert_eq!(order[2], first[0], "{order:?}");
        assert!(order.contains(&other) && order.contains(&first[1]), "{order:?}");
    }

    #[proves("fair.due", "fair.turn")]
    #[needs(FairKeys)]
    async fn a_reclaimed_job_goes_behind_the_others_of_its_key(cx: &Cx) {
        let node = cx.node().await;
        let jobs = node.add_all(&flood("a", 3)).await;
        let lost = cx.node().await;
        lost.beat().await;
        assert_eq!(lost.claim_ids(1).await, jobs[..1]);
        lost.die().await;
        assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        assert_eq!(order(&node, 3).await, [jobs[1], jobs[2], jobs[0]]);
    }

    #[proves("fair.turn", "permit.order")]
    #[needs(FairKeys, Permits)]
    async fn jobs_with_a_permit_take_turns(cx: &Cx) {
        let node = cx.node().await;
        let permits = node.store.permits();
        let permits = permits.expect("the case needs the power Permits");
        ok(permits.set_permits(&name("api"), 1, IfKnown::Change).await);
        let needing = |key: &str, count| -> Vec<NewJob> {
            flood(key, count).into_iter().map(|job| job.permit("api")).collect()
        };
        let noisy = node.add_all(&needing("a", 12)).await;
        let quiet = node.add_all(&needing("b", 2)).await;
        // Each claim could take more jobs than there are permits.
        let mut order = Vec::new();
        for _ in 0..6 {
            let claimed = node.claim(9).await;
            order.extend(ids(&claimed));
            for job in claimed {
                node.succeed(job.claim.token).await;
            }
        }
        let expected = [noisy[0], quiet[0], noisy[1], quiet[1], noisy[2], noisy[3]];
        assert_eq!(order, expected);
    }

    #[proves("fair.turn")]
    #[needs(FairKeys)]
    async fn many_keys_with_one_turn_are_claimed_at_once(cx: &Cx) {
        let node = cx.node().await;
        let at = |ms: i64| time::from_millis(1_000_000_000_000 + ms);
        let mut of_keys = vec![node.add(of("first").run_at(at(1))).await];
        let keys = (0..60).map(|key| of(&format!("key {key}")).run_at(at(1)));
        of_keys.extend(node.add_all(&keys.collect::<Vec<_>>()).await);
        // With two streams of jobs, a store may read the jobs of one turn in several steps.
        let later: Vec<NewJob> = (0..40).map(|_| job().run_at(at(2))).collect();
        node.add_all(&later).await;
        let mut claimed = node.claim_ids(61).await;
        claimed.sort();
        of_keys.sort();
        assert_eq!(claimed, of_keys);
    }

    #[proves("fair.turn", "fair.bound")]
    #[needs(FairKeys)]
    async fn jobs_that_are_enqueued_one_by_one_take_turns(cx: &Cx) {
        let node = cx.node().await;
        let mut of_key: HashMap<&str, Vec<JobId>> = HashMap::new();
        for key in ["a", "a", "a", "b", "b"] {
            of_key.entry(key).or_default().push(node.add(of(key)).await);
        }
        let (a, b) = (&of_key["a"], &of_key["b"]);
        assert_eq!(order(&node, 5).await, [a[0], b[0], a[1], b[1], a[2]]);
    }

    #[proves("fair.turn", "fair.due")]
    #[needs(FairKeys, Clock)]
    async fn turns_are_used_while_the_clock_is_behind(cx: &Cx) {
        let node = cx.node().await;
        let jobs = node.add_all(&["a", "b", "a"].map(of)).await;
        cx.set_back(HOUR).await;
        assert_eq!(order(&node, 3).await, jobs);
    }

    #[proves("fair.plain", "claim.order")]
    #[needs(FairKeys)]
    async fn jobs_without_a_key_keep_their_order(cx: &Cx) {
        let node = cx.node().await;
        let at = |ms: i64| time::from_millis(1_000_000_000_000 + ms);
        let plain = [3, 1, 5].map(|ms| job().run_at(at(ms)));
        let all = node.add_all(&plain).await;
        let fair = [2, 4].map(|ms| of("a").run_at(at(ms)));
        let fair = node.add_all(&fair).await;
        let expected = [all[1], fair[0], all[0], fair[1], all[2]];
        assert_eq!(node.claim_ids(9).await, expected);
    }

    #[proves("fair.turn", "claim.order")]
    #[needs(FairKeys)]
    async fn the_next_job_in_turn_stands_for_those_behind_it(cx: &Cx) {
        let node = cx.node().await;
        let at = |ms: i64| time::from_millis(1_000_000_000_000 + ms);
        let next = node.add(of("a").run_at(at(3))).await;
        let behind = node.add(of("a").run_at(at(1))).await;
        let plain = node.add(job().run_at(at(2))).await;
        assert_eq!(node.claim_ids(2).await, [plain, next]);
        assert_eq!(node.claim_ids(2).await, [behind]);
    }

    #[proves("fair.act")]
    #[needs(FairKeys)]
    async fn an_action_takes_the_turn_of_a_job_away(cx: &Cx) {
        let node = cx.node().await;
        let at = time::from_millis(1_000_000_000_000);
        for actions in [
            vec![JobAction::Pause, JobAction::Resume],
            vec![JobAction::Reschedule(RunAt::At(at))],
            [Priority::High, Priority::Normal].map(JobAction::SetPriority).to_vec(),
        ] {
            let jobs = node.add_all(&[of("a"), of("b"), of("a"), of("b")]).await;
            for action in &actions {
                node.act(jobs[1], *action).await;
            }
            let order = order(&node, 4).await;
            assert_eq!(order, [jobs[0], jobs[2], jobs[3], jobs[1]], "{actions:?}");
        }
    }

    #[proves("fair.act")]
    #[needs(FairKeys)]
    async fn an_action_that_changes_nothing_leaves_the_turn(cx: &Cx) {
        let node = cx.node().await;
        let at = time::from_millis(1_000_000_000_000);
        for action in [
            JobAction::SetPriority(Priority::Normal),
            JobAction::Reschedule(RunAt::At(at)),
        ] {
            let jobs = node.add_all(&["a", "b", "a", "b"].map(|key| of(key).run_at(at))).await;
            node.act(jobs[0], action).await;
            assert_eq!(order(&node, 4).await, jobs, "{action:?}");
        }
    }

    #[proves("fair.act", "keys.replace")]
    #[needs(FairKeys, Workflows)]
    async fn a_job_whose_payload_is_replaced_keeps_its_turn(cx: &Cx) {
        let node = cx.node().await;
        let replacing = || of("a").unique_key("k").on_conflict(OnConflict::Replace);
        let jobs = node.add_all(&[replacing(), of("b"), of("a"), of("b")]).await;
        for _ in 0..3 {
            assert_eq!(node.offer(&replacing()).await, Enqueued::Replaced(jobs[0]));
        }
        assert_eq!(order(&node, 4).await, jobs);
    }

    #[proves("fair.act", "fair.due", "keys.debounce")]
    #[needs(FairKeys, Workflows, Clock)]
    async fn a_job_that_is_debounced_again_waits_without_a_turn(cx: &Cx) {
        let node = cx.node().await;
        let debounced = || of("a").unique_key("k").debounce(10 * SECOND, HOUR);
        let later = node.add(debounced()).await;
        let others = node.add_all(&flood("b", 2)).await;
        cx.advance(10 * SECOND).await;
        // This claim gives the job a turn.
        assert_eq!(node.claim_ids(1).await, [others[0]]);
        assert_eq!(node.offer(&debounced()).await, Enqueued::Replaced(later));
        assert_eq!(node.claim_ids(3).await, [others[1]]);
        cx.advance(10 * SECOND).await;
        assert_eq!(node.claim_ids(3).await, [later]);
    }

    #[proves("fair.act")]
    #[needs(FairKeys)]
    async fn operators_change_jobs_with_keys(cx: &Cx) {
        let node = cx.node().await;
        let jobs = node.add_all(&flood("a", 3)).await;
        let high = JobAction::SetPriority(Priority::High);
        node.act(jobs[2], high).await;
        assert_eq!(node.claim_ids(1).await, [jobs[2]]);
        node.act(jobs[0], JobAction::Pause).await;
        assert_eq!(node.claim_ids(3).await, [jobs[1]]);
        node.act(jobs[0], JobAction::Resume).await;
        assert_eq!(node.count_due("default", 9).await, 1);
        assert_eq!(node.due_routes().await.len(), 1);
        assert_eq!(node.claim_ids(3).await, [jobs[0]]);
    }
}
