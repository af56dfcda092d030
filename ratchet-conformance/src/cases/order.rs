//! The claim order and aging, compared with the rule that [`ClaimRank`] implements.

use ratchet_core::priority::ClaimRank;

use super::prelude::*;

cases! {
    "order" on Cx;

    #[proves("claim.order")]
    async fn a_higher_priority_goes_first(cx: &Cx) {
        let node = cx.node().await;
        let batch = Priority::ALL.map(|priority| job().priority(priority));
        let mut all = node.add_all(&batch).await;
        all.reverse();
        assert_eq!(node.claim_ids(2).await, all[..2]);
        assert_eq!(node.claim_ids(10).await, all[2..]);
    }

    #[proves("claim.order")]
    async fn within_a_priority_the_earlier_due_goes_first(cx: &Cx) {
        let node = cx.node().await;
        let now = time::to_millis(node.now().await);
        let at = |ago: i64| job().run_at(time::from_millis(now - ago));
        let all = node.add_all(&[at(10), at(30), at(20), at(31)]).await;
        let request = node.request(10).aging(Aging::OFF);
        let expected = [all[3], all[1], all[2], all[0]];
        assert_eq!(ids(&node.claim_with(&request).await), expected);
    }

    #[proves("claim.order")]
    async fn jobs_due_at_the_same_time_go_by_id(cx: &Cx) {
        let node = cx.node().await;
        let due = time::from_millis(1_000_000_000_000);
        let batch: Vec<NewJob> = jobs(20).into_iter().map(|job| job.run_at(due)).collect();
        let shuffled: Vec<NewJob> = (0..20).map(|index| batch[index * 7 % 20].clone()).collect();
        let mut all = node.add_all(&shuffled).await;
        all.sort();
        assert_eq!(node.claim_ids(7).await, all[..7]);
        assert_eq!(node.claim_ids(20).await, all[7..]);
    }

    #[proves("claim.order")]
    async fn the_order_runs_across_queues_kinds_and_capabilities(cx: &Cx) {
        let node = cx.node().await;
        let batch: Vec<NewJob> = (0..30)
            .map(|number| {
                let new = NewJob::new(&format!("kind {}", number % 3), &number)
                    .queue(&format!("queue {}", number % 5))
                    .run_at(time::from_millis(1_000_000_000_000 + (number * 11) % 30));
                if number % 2 == 0 {
                    new
                } else {
                    new.capability("c")
                }
            })
            .collect();
        let all = node.add_all(&batch).await;
        let mut expected: Vec<usize> = (0..30).collect();
        expected.sort_by_key(|number| (number * 11) % 30);
        let expected: Vec<JobId> = expected.into_iter().map(|number| all[number]).collect();
        let request = node
            .request(13)
            .aging(Aging::OFF)
            .capabilities(names(["c"]));
        let mut claimed = Vec::new();
        for _ in 0..3 {
            claimed.extend(ids(&node.claim_with(&request).await));
        }
        assert_eq!(claimed, expected);
    }

    #[proves("claim.order", "claim.limit")]
    async fn many_jobs_of_two_priorities_are_claimed_in_order(cx: &Cx) {
        let node = cx.node().await;
        let now = time::to_millis(node.now().await);
        // In each priority, groups of 15 jobs are due at the same time. If a store reads in chunks,
        // a chunk ends in the middle of such a group.
        let due = |number: i64| 1_000_000_000_000 + number * 7 % 4;
        let (mut batch, mut expected) = (Vec::new(), Vec::new());
        for number in 0..60 {
            for priority in [Priority::Low, Priority::High] {
                let new = job().priority(priority).run_at(time::from_millis(due(number)));
                expected.push(ClaimRank::new(priority, due(number), new.id(), Aging::OFF, now));
                batch.push(new);
            }
        }
        node.add_all(&batch).await;
        expected.sort();
        let expected: Vec<JobId> = expected.iter().map(ClaimRank::id).collect();
        let request = node.request(100).aging(Aging::OFF);
        assert_eq!(ids(&node.claim_with(&request).await), expected[..100]);
        assert_eq!(ids(&node.claim_with(&request).await), expected[100..]);
    }

    #[proves("claim.aging")]
    #[needs(Clock)]
    async fn a_job_gains_one_level_with_every_whole_interval(cx: &Cx) {
        // Each row: how long the lower job has waited, and whether it is then claimed before a
        // fresh job two levels up. At equal levels, the job that is due earlier is claimed first.
        let table = [
            (Duration::ZERO, false),
            (MINUTE - MILLI, false),
            (MINUTE, false),
            (2 * MINUTE - MILLI, false),
            (2 * MINUTE, true),
            (5 * MINUTE, true),
        ];
        let aging = Aging::every(MINUTE);
        for (waited, first) in table {
            let node = cx.node().await;
            let old = node.add(job().priority(Priority::Low)).await;
            cx.advance(waited).await;
            let fresh = node.add(job().priority(Priority::High)).await;
            let claimed = ids(&node.claim_with(&node.request(2).aging(aging)).await);
            let expected = if first { [old, fresh] } else { [fresh, old] };
            assert_eq!(claimed, expected, "after {waited:?}");
        }
    }

    #[proves("claim.aging")]
    #[needs(Clock)]
    async fn the_lowest_goes_before_a_fresh_critical_after_five_intervals(cx: &Cx) {
        let node = cx.node().await;
        let lowest = node.add(job().priority(Priority::Lowest)).await;
        cx.advance(5 * 15 * MINUTE).await;
        let critical = node.add(job().priority(Priority::Critical)).await;
        assert_eq!(node.claim_ids(1).await, [lowest]);
        assert_eq!(node.claim_ids(1).await, [critical]);
    }

    #[proves("claim.aging")]
    #[needs(Clock)]
    async fn without_aging_a_job_never_rises(cx: &Cx) {
        let node = cx.node().await;
        let lowest = node.add(job().priority(Priority::Lowest)).await;
        cx.advance(10_000 * DAY).await;
        let low = node.add(job().priority(Priority::Low)).await;
        for aging in [Aging::OFF, Aging::every(Duration::ZERO)] {
            let claimed = node.claim_with(&node.request(2).aging(aging)).await;
            assert_eq!(ids(&claimed), [low, lowest]);
            for job in claimed {
                node.release(job.claim.token).await;
            }
        }
    }

    #[proves("claim.aging")]
    #[needs(Clock)]
    async fn aging_never_changes_the_stored_priority(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().priority(Priority::Lowest)).await;
        cx.advance(DAY).await;
        assert_eq!(node.claim_one().await.claim.priority, Priority::Lowest);
        assert_eq!(node.get(id).await.spec.priority, Priority::Lowest);
    }

    #[proves("claim.aging", "claim.order")]
    async fn extreme_ages_and_intervals_do_not_overflow(cx: &Cx) {
        let node = cx.node().await;
        let oldest = node
            .add(
                job()
                    .priority(Priority::Lowest)
                    .run_at(time::from_millis(0)),
            )
            .await;
        let newest = node.add(job().priority(Priority::Critical)).await;
        for (aging, first) in [
            (Aging::every(MILLI), oldest),
            (Aging::every(Duration::from_nanos(1)), oldest),
            (Aging::every(Duration::MAX), newest),
        ] {
            let claimed = node.claim_with(&node.request(1).aging(aging)).await;
            assert_eq!(ids(&claimed), [first], "{aging:?}");
            node.release(claimed[0].claim.token).await;
        }
    }

    #[proves("claim.order", "settle.effect")]
    #[needs(Clock)]
    async fn a_released_job_keeps_its_place_and_a_retried_one_takes_a_new(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(job()).await;
        cx.advance(SECOND).await;
        let second = node.add(job()).await;
        cx.advance(SECOND).await;
        node.release(node.take().await).await;
        assert_eq!(node.claim_ids(1).await, [first]);
        let token = node.token(first, 2).await;
        assert_eq!(
            node.settle(token, retry(Duration::ZERO)).await,
            Fenced::Applied
        );
        assert_eq!(node.claim_ids(2).await, [second, first]);
    }

    #[proves("claim.order", "claim.aging")]
    #[needs(Clock)]
    async fn random_backlogs_are_claimed_in_the_order_of_the_rule(cx: &Cx) {
        for seed in 0..25 {
            let other = cx.another().await;
            random_backlog(&other, seed).await;
            cx.close(other).await;
        }
    }
}

/// Enqueues random jobs, claims them in batches of random size, and checks that the claims follow
/// the order of [`ClaimRank`].
async fn random_backlog(cx: &Cx, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let node = cx.node().await;
    let now = time::to_millis(node.now().await);
    let aging = Aging::every(Duration::from_millis(random.u64(0..40)));
    let mut expected = Vec::new();
    let mut batch = Vec::new();
    for number in 0..random.usize(1..120) {
        let run_at = now - random.i64(-20..200);
        let priority = random.choice(Priority::ALL).unwrap_or_default();
        let mut new = NewJob::new(&format!("kind {}", random.u8(0..2)), &number)
            .queue(&format!("queue {}", random.u8(0..2)))
            .priority(priority)
            .run_at(time::from_millis(run_at));
        if random.bool() {
            new = new.capability("c");
        }
        if run_at <= now {
            expected.push(ClaimRank::new(priority, run_at, new.id(), aging, now));
        }
        batch.push(new);
    }
    random.shuffle(&mut batch);
    node.add_all(&batch).await;
    expected.sort();
    let expected: Vec<JobId> = expected.iter().map(ClaimRank::id).collect();
    let mut claimed = Vec::new();
    loop {
        let request = node
            .request(random.usize(1..30))
            .aging(aging)
            .capabilities(names(["c"]));
        let bite = ids(&node.claim_with(&request).await);
        if bite.is_empty() {
            break;
        }
        claimed.extend(bite);
    }
    assert_eq!(claimed, expected, "seed {seed}");
}
