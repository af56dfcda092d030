//! Fair keys: the keys of a route and priority take turns.

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
