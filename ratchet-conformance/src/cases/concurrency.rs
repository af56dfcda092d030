//! Concurrency: the contract holds under concurrent calls of every kind.

use std::collections::{BTreeMap, BTreeSet};

use super::prelude::*;

/// Claims jobs and ends them with success until no job is due. Returns the tokens of the claims.
async fn drain(node: TestNode, limit: usize) -> Vec<ClaimToken> {
    let mut had = Vec::new();
    loop {
        let claimed = node.claim(limit).await;
        if claimed.is_empty() {
            return had;
        }
        let tokens: Vec<ClaimToken> = claimed.iter().map(|job| job.claim.token).collect();
        let ends: Vec<Settlement> = tokens
            .iter()
            .map(|token| Settlement::new(*token, Outcome::Succeeded { result: None }))
            .collect();
        assert_eq!(
            node.settle_all(&ends).await,
            vec![Fenced::Applied; ends.len()]
        );
        had.extend(tokens);
    }
}

/// Checks the invariants of every stored job and of its history.
async fn assert_sound(node: &TestNode) {
    let mut keys = BTreeSet::new();
    for job in node.everything().await {
        let history = node.history(job.id).await;
        let running = job.state == JobState::Running;
        assert_eq!(job.claimed_at.is_some(), running, "{job:?}");
        assert_eq!(
            job.finished_at.is_some(),
            job.state.is_terminal(),
            "{job:?}"
        );
        assert!(
            running || (job.node.is_none() && !job.cancel_requested),
            "{job:?}"
        );
        // Every claim but the current one has ended exactly once.
        let ended: Vec<u64> = history.iter().map(|entry| entry.seq).collect();
        let last = job.claim_seq - u64::from(running);
        assert_eq!(ended, (1..=last).collect::<Vec<u64>>(), "{job:?}");
        if let Some(key) = job.spec.unique_key.filter(|_| !job.state.is_terminal()) {
            assert!(
                keys.insert(key),
                "expected at most one unfinished job per unique key, found \
                 two"
            );
        }
    }
}

cases! {
    "concurrency" on Cx;

    #[proves("claim.exclusive")]
    async fn many_claimers_get_every_job_exactly_once(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let mut all = nodes[0].add_all(&jobs(400)).await;
        let had = race(8, |racer| drain(nodes[racer % 4].sibling(), 1 + racer * 3)).await;
        let mut claimed: Vec<JobId> = had.iter().flatten().map(|token| token.job).collect();
        claimed.sort();
        all.sort();
        assert_eq!(claimed, all);
        assert!(had.iter().flatten().all(|token| token.seq == 1));
        assert_sound(&nodes[0]).await;
    }

    #[proves("claim.exclusive", "claim.limit")]
    async fn both_kinds_of_claim_share_the_jobs(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let mut all = nodes[0].add_all(&jobs(200)).await;
        let claimed = race(8, |racer| {
            let node = nodes[racer % 2].sibling();
            async move {
                let mut had = Vec::new();
                loop {
                    let batch: Vec<JobId> = if racer % 2 == 0 {
                        node.claim_ids(7).await
                    } else {
                        let lean = node.claim_lean(&node.request(7)).await;
                        lean.iter().map(|claim| claim.token.job).collect()
                    };
                    if batch.is_empty() {
                        return had;
                    }
                    had.extend(batch);
                }
            }
        })
        .await;
        let mut claimed: Vec<JobId> = claimed.into_iter().flatten().collect();
        claimed.sort();
        all.sort();
        assert_eq!(claimed, all);
    }

    #[proves("claim.limit")]
    async fn a_claim_under_contention_is_filled_while_jobs_are_due(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        nodes[0].add_all(&jobs(400)).await;
        let sizes = race(8, |racer| {
            let node = nodes[racer % 4].sibling();
            async move { node.claim(50).await.len() }
        })
        .await;
        assert_eq!(sizes, [50; 8]);
    }

    #[proves("claim.order", "claim.exclusive")]
    async fn each_of_many_claimers_gets_its_jobs_in_order(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let batch: Vec<NewJob> = jobs(300)
            .into_iter()
            .enumerate()
            .map(|(number, job)| job.priority(Priority::ALL[number % 5]))
            .collect();
        nodes[0].add_all(&batch).await;
        let claimed = race(6, |racer| {
            let node = nodes[racer % 4].sibling();
            async move {
                let mut ranks = Vec::new();
                for _ in 0..5 {
                    for job in node.claim(10).await {
                        let level = std::cmp::Reverse(job.claim.priority);
                        ranks.push((level, job.claim.run_at, job.claim.token.job));
                    }
                }
                ranks
            }
        })
        .await;
        assert_eq!(claimed.iter().map(Vec::len).sum::<usize>(), 300);
        for ranks in claimed {
            assert!(ranks.is_sorted(), "expected every claimer to get its jobs in order");
        }
    }

    #[proves("enqueue.created", "claim.exclusive")]
    async fn enqueueing_and_claiming_at_once_loses_nothing(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let had = race(8, |racer| {
            let node = nodes[racer % 4].sibling();
            async move {
                let mut had = Vec::new();
                for _ in 0..15 {
                    if racer % 2 == 0 {
                        node.add_all(&jobs(5)).await;
                    } else {
                        had.extend(drain(node.clone(), 4).await);
                    }
                }
                had
            }
        })
        .await;
        let mut claimed: Vec<JobId> = had.into_iter().flatten().map(|token| token.job).collect();
        claimed.extend(
            drain(nodes[0].sibling(), 100)
                .await
                .iter()
                .map(|token| token.job),
        );
        let stored: Vec<JobId> = nodes[0]
            .everything()
            .await
            .iter()
            .map(|job| job.id)
            .collect();
        claimed.sort();
        assert_eq!(claimed, stored);
        assert_eq!(stored.len(), 4 * 15 * 5);
    }

    #[proves("settle.token", "settle.repeat")]
    async fn of_many_ends_of_one_claim_one_counts(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for _ in 0..10 {
            let id = nodes[0].add(job()).await;
            let token = nodes[0].take().await;
            race(8, |racer| {
                let node = nodes[racer % 4].clone();
                let outcome = match racer % 3 {
                    0 => result("1"),
                    1 => Outcome::Cancelled,
                    _ => Outcome::Failed {
                        error: "it failed".to_owned(),
                    },
                };
                async move { node.settle(token, outcome).await }
            })
            .await;
            let stored = nodes[0].get(id).await;
            assert!(stored.state.is_terminal());
            assert_eq!((stored.attempts, nodes[0].history(id).await.len()), (1, 1));
            assert_eq!(stored.result.is_some(), stored.state == JobState::Succeeded);
        }
        assert_sound(&nodes[0]).await;
    }

    #[proves("settle.cancel", "cancel.running", "settle.keys")]
    async fn an_end_and_a_cancel_at_once_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for round in 0..20 {
            let key = format!("key {round}");
            let id = nodes[0].add(job().unique_key(&key)).await;
            let token = nodes[0].take().await;
            let answers = race(2, |racer| {
                let node = nodes[racer].clone();
                async move {
                    if racer == 0 {
                        assert_eq!(node.settle(token, result("1")).await, Fenced::Applied);
                        None
                    } else {
                        Some(node.act(id, JobAction::Cancel).await)
                    }
                }
            })
            .await;
            let stored = nodes[0].get(id).await;
            let expected = match answers[1] {
                Some(ActionOutcome::CancelRequested) => (JobState::Cancelled, None),
                Some(ActionOutcome::Refused(JobState::Succeeded)) => {
                    (JobState::Succeeded, Some(json("1")))
                }
                other => panic!("unexpected answer to the cancellation: {other:?}"),
            };
            assert_eq!((stored.state, stored.result), expected);
            let next = nodes[1].add(job().unique_key(&key)).await;
            nodes[1].act(next, JobAction::Cancel).await;
        }
    }

    #[proves("cancel.waiting", "claim.exclusive")]
    async fn a_claim_and_a_cancel_at_once_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for _ in 0..20 {
            let id = nodes[0].add(job()).await;
            let answers = race(2, |racer| {
                let node = nodes[racer].clone();
                async move {
                    if racer == 0 {
                        (node.claim_ids(1).await.len(), None)
                    } else {
                        (0, Some(node.act(id, JobAction::Cancel).await))
                    }
                }
            })
            .await;
            let stored = nodes[0].get(id).await;
            match answers[1].1 {
                Some(ActionOutcome::Became(JobState::Cancelled)) => {
                    assert_eq!(answers[0].0, 0, "expected no claim of the cancelled job");
                    assert_eq!(stored.state, JobState::Cancelled);
                }
                Some(ActionOutcome::CancelRequested) => {
                    assert_eq!(answers[0].0, 1);
                    assert!(stored.cancel_requested);
                    let token = nodes[0].present(id).await;
                    nodes[0].settle(token, Outcome::Released).await;
                }
                other => panic!("unexpected answer to the cancellation: {other:?}"),
            }
        }
    }

    #[proves("reschedule.job", "claim.exclusive")]
    async fn a_claim_and_a_reschedule_at_once_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for _ in 0..20 {
            let id = nodes[0].add(job()).await;
            let answers = race(2, |racer| {
                let node = nodes[racer].clone();
                async move {
                    if racer == 0 {
                        (node.claim_ids(1).await.len(), None)
                    } else {
                        let later = JobAction::Reschedule(RunAt::In(HOUR));
                        (0, Some(node.act(id, later).await))
                    }
                }
            })
            .await;
            let (claimed, outcome) = (answers[0].0, answers[1].1);
            let refused = ActionOutcome::Refused(JobState::Running);
            let expected = if claimed == 1 { refused } else { ActionOutcome::Changed };
            assert_eq!(outcome, Some(expected));
        }
    }

    #[proves("delete.job", "requeue.fresh")]
    async fn a_requeue_and_a_delete_at_once_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for _ in 0..20 {
            let id = nodes[0].add(cx.tagged(job().unique_key("k"), "t")).await;
            nodes[0].fail(nodes[0].take().await).await;
            let actions = [JobAction::Requeue, JobAction::Delete];
            let answers = race(2, |racer| {
                let node = nodes[racer].clone();
                async move { node.act(id, actions[racer]).await }
            })
            .await;
            let found = nodes[0].find(id).await.map(|job| job.state);
            let requeued = [
                ActionOutcome::Became(JobState::Pending),
                ActionOutcome::Refused(JobState::Pending),
            ];
            let deleted = [ActionOutcome::NotFound, ActionOutcome::Deleted];
            match found {
                Some(state) => assert_eq!((state, &*answers), (JobState::Pending, &requeued[..])),
                None => assert_eq!(answers, deleted),
            }
            nodes[0].act(id, JobAction::Cancel).await;
        }
    }

    #[proves("claim.paused", "queue.pause")]
    async fn once_a_pause_has_returned_no_claim_takes_its_jobs(cx: &Cx) {
        let nodes = cx.nodes(3).await;
        for round in 0..10 {
            let name = format!("round {round}");
            let new = |number| NewJob::new(&name, &number).queue(&name);
            let batch: Vec<NewJob> = (0..60).map(new).collect();
            nodes[0].add_all(&batch).await;
            let pause = match round % 2 {
                0 => pause_of_queue(&name),
                _ => pause_of_kind(&name),
            };
            race(3, |racer| {
                let (node, pause) = (nodes[racer].clone(), pause.clone());
                async move {
                    if racer == 0 {
                        node.pause(&pause).await;
                        assert!(node.claim(10).await.is_empty(), "expected no claim after the pause");
                    } else {
                        while !node.claim(3).await.is_empty() {}
                    }
                }
            })
            .await;
        }
    }

    #[proves("reclaim.once", "settle.token")]
    async fn an_end_and_a_reclaim_at_once_agree(cx: &Cx) {
        for _ in 0..10 {
            let (a, b) = (cx.node().await, cx.node().await);
            a.beat().await;
            let id = a.add(job()).await;
            let token = a.take().await;
            a.beat_with(&a.heartbeat(NodeStatus::Left)).await;
            let nodes = [a, b];
            let answers = race(2, |racer| {
                let node = nodes[racer].clone();
                async move {
                    if racer == 0 {
                        node.settle(token, result("1")).await == Fenced::Applied
                    } else {
                        node.reclaim(&reclaim()).await.len() == 1
                    }
                }
            })
            .await;
            assert_ne!(answers[0], answers[1], "expected exactly one of the settlement and the reclaim to take effect");
            let state = nodes[1].state(id).await;
            assert_eq!(state == JobState::Succeeded, answers[0]);
            assert_eq!(nodes[1].history(id).await.len(), 1);
            nodes[1].act(id, JobAction::Cancel).await;
        }
    }

    #[proves("requeue.key", "keys.race")]
    async fn of_many_requeues_and_enqueues_one_has_the_key(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let mut dead = Vec::new();
        for _ in 0..4 {
            dead.push(nodes[0].add(job().unique_key("k")).await);
            nodes[0].fail(nodes[0].take().await).await;
        }
        race(8, |racer| {
            let (node, id) = (nodes[racer % 4].clone(), dead[racer % 4]);
            async move {
                if racer < 4 {
                    node.act(id, JobAction::Requeue).await;
                } else {
                    node.offer(&job().unique_key("k")).await;
                }
            }
        })
        .await;
        let stored = nodes[0].everything().await;
        let live = stored.iter().filter(|job| !job.state.is_terminal());
        assert_eq!(live.count(), 1);
    }

    #[proves("claim.exclusive", "settle.token", "keys.race", "reclaim.once")]
    async fn a_storm_of_everything_leaves_a_sound_store(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let tokens = race(12, |racer| storm(nodes[racer % 4].sibling(), racer)).await;
        assert_sound(&nodes[0]).await;
        let mut given: BTreeMap<ClaimToken, usize> = BTreeMap::new();
        for token in tokens.into_iter().flatten() {
            *given.entry(token).or_default() += 1;
        }
        let twice = given.iter().find(|(_, count)| **count > 1);
        assert_eq!(twice, None, "expected every token once, found one twice");
    }

    #[proves("act.respond", "requeue.key", "cancel.waiting")]
    async fn a_requeue_and_a_cancel_of_a_dead_letter_at_once_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for round in 0..20 {
            let key = format!("key {round}");
            let id = nodes[0].add(job().unique_key(&key)).await;
            nodes[0].fail(nodes[0].take().await).await;
            let answers = race(2, |racer| {
                let action = [JobAction::Requeue, JobAction::Cancel][racer];
                let node = nodes[racer].clone();
                async move { node.act(id, action).await }
            })
            .await;
            assert_eq!(answers[0], ActionOutcome::Became(JobState::Pending));
            let state = match answers[1] {
                ActionOutcome::Refused(JobState::Failed) => JobState::Pending,
                ActionOutcome::Became(JobState::Cancelled) => JobState::Cancelled,
                other => panic!("unexpected answer to the cancellation: {other:?}"),
            };
            assert_eq!(nodes[0].state(id).await, state);
            // The job holds the key exactly as long as it is pending.
            let next = nodes[1].offer(&job().unique_key(&key)).await;
            let waits = state == JobState::Pending;
            assert_eq!(next == Enqueued::Duplicate(id), waits, "{next:?}");
            nodes[1].act(next.id(), JobAction::Cancel).await;
        }
    }

    #[proves("keys.idempotency", "purge.keys", "keys.race")]
    #[needs(Clock, IdempotencyKeys)]
    async fn an_enqueue_and_the_purge_of_its_first_job_agree(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for round in 0..20 {
            let once = job().idempotency_key(&format!("key {round}"));
            let again = || NewJob::new("again", &()).idempotency_key(&format!("key {round}"));
            let first = nodes[0].add(once).await;
            nodes[0].succeed(nodes[0].take().await).await;
            cx.advance(HOUR).await;
            race(4, |racer| {
                let (node, again) = (nodes[racer].clone(), again());
                async move {
                    if racer == 0 {
                        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 1);
                    } else {
                        assert_eq!(node.offer(&again).await, Enqueued::Duplicate(first));
                    }
                }
            })
            .await;
            assert_eq!(nodes[1].offer(&again()).await, Enqueued::Duplicate(first));
            assert!(nodes[0].everything().await.is_empty());
        }
    }

    #[proves("lock.renew", "lock.exclusive", "lock.expire")]
    #[needs(Clock)]
    async fn a_renewal_and_a_takeover_at_the_expiry_agree(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for round in 0..10 {
            // The clock stops one millisecond before the lock's expiry, or exactly at its expiry.
            let early = round % 2 == 0;
            let lock = format!("lock {round}");
            let Acquired::Acquired { fence } = nodes[0].acquire(&lock, SECOND).await else {
                panic!("expected to acquire the free lock, found it held");
            };
            cx.advance(SECOND - if early { MILLI } else { Duration::ZERO })
                .await;
            let won = race(2, |racer| {
                let (node, lock) = (nodes[racer].clone(), lock.clone());
                async move {
                    if racer == 0 {
                        let (locks, lock) = (node.store.locks(), name(&lock));
                        let renewed = locks.renew(&lock, &node.label, fence, SECOND).await;
                        ok(renewed) == Fenced::Applied
                    } else {
                        let taken = node.acquire(&lock, SECOND).await;
                        matches!(taken, Acquired::Acquired { .. })
                    }
                }
            })
            .await;
            assert_eq!(won, [early, !early], "expected the renewal to succeed before the expiry, and the other node from then on");
        }
    }
}

/// Makes 30 random store calls, and returns the tokens of the claims that it received. `racer` is
/// the seed.
async fn storm(node: TestNode, racer: usize) -> Vec<ClaimToken> {
    let mut random = fastrand::Rng::with_seed(racer as u64);
    let mut given = Vec::new();
    let mut open: Vec<ClaimToken> = Vec::new();
    node.beat().await;
    for step in 0..30 {
        match random.u8(0..8) {
            0 | 1 => {
                let key = format!("key {}", random.u8(0..6));
                node.enqueue(&[job(), job().unique_key(&key), job().delay(HOUR)])
                    .await;
            }
            2 | 3 => {
                let claimed = node.claim(random.usize(1..5)).await;
                open.extend(claimed.iter().map(|job| job.claim.token));
                given.extend(claimed.iter().map(|job| job.claim.token));
            }
            4 => {
                let delay = Duration::ZERO;
                let end = |token: ClaimToken| match random.u8(0..5) {
                    0 => Settlement::new(token, Outcome::Released),
                    1 => Settlement::new(token, retry(delay)),
                    2 => Settlement::new(
                        token,
                        Outcome::Failed {
                            error: String::new(),
                        },
                    ),
                    3 => Settlement::new(token, Outcome::Cancelled),
                    _ => Settlement::new(token, result("1")),
                };
                let ends: Vec<Settlement> = open.drain(..).map(end).collect();
                node.settle_all(&ends).await;
            }
            5 => {
                let action = random.choice(JobAction::ALL).unwrap_or(JobAction::Cancel);
                let limit = random.usize(1..4);
                let filter = JobFilter::all();
                node.act_on(&JobSelector::matching(filter, limit), action)
                    .await;
            }
            6 => {
                node.reclaim(&reclaim()).await;
            }
            _ => {
                let leave = step > 20 && random.bool();
                let status = if leave {
                    NodeStatus::Left
                } else {
                    NodeStatus::Active
                };
                node.beat_with(&node.heartbeat(status)).await;
            }
        }
    }
    given
}
