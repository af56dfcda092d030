//! Retries: the stored policy, the counted attempts, and requeued dead letters.

use super::prelude::*;

cases! {
    "retry" on Cx;

    #[proves("enqueue.created", "claim.whole")]
    async fn every_policy_is_stored_and_comes_with_the_claim(cx: &Cx) {
        let node = cx.node().await;
        let policies = [
            RetryPolicy::never(),
            RetryPolicy::new(u32::MAX, Backoff::None),
            RetryPolicy::fixed(3, MILLI),
            RetryPolicy::linear(4, 1_500 * MILLI, HOUR).with_jitter(100),
            RetryPolicy::exponential(5, SECOND, 300 * DAY).with_jitter(1),
            RetryPolicy::default(),
        ];
        for policy in policies {
            let id = node.add(job().retry(policy)).await;
            let claimed = node.claim_one().await;
            assert_eq!(claimed.claim.retry, policy);
            assert_eq!(node.get(id).await.spec.retry, policy);
        }
    }

    #[proves("settle.effect")]
    async fn every_ended_body_is_counted(cx: &Cx) {
        let node = cx.node().await;
        node.add(job()).await;
        for attempts in 0..12 {
            let claimed = node.claim_one().await;
            assert_eq!(claimed.claim.attempts, attempts);
            node.settle(claimed.claim.token, retry(Duration::ZERO))
                .await;
        }
    }

    #[proves("settle.effect")]
    async fn hand_backs_and_snoozes_never_count(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for _ in 0..5 {
            node.release(node.take().await).await;
            let delay = Duration::ZERO;
            node.settle(node.take().await, Outcome::Snoozed { delay })
                .await;
        }
        let stored = node.get(id).await;
        assert_eq!(
            (stored.attempts, stored.crash_count, stored.claim_seq),
            (0, 0, 10)
        );
    }

    #[proves("requeue.fresh")]
    #[needs(Clock)]
    async fn a_requeued_dead_letter_starts_afresh(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        node.take().await;
        cx.advance(HOUR).await;
        assert_eq!(node.reclaim(&reclaim()).await[0].crash_count, 1);
        let token = node.take().await;
        node.report(token, ReportKind::Checkpoint(json("[5]")))
            .await;
        node.fail(token).await;
        let (dead, history) = (node.get(id).await, node.history(id).await);
        assert_eq!((dead.attempts, dead.crash_count), (1, 1));
        cx.advance(HOUR).await;
        let acted = node.act(id, JobAction::Requeue).await;
        assert_eq!(acted, ActionOutcome::Became(JobState::Pending));
        let mut expected = dead;
        expected.state = JobState::Pending;
        expected.run_at = node.now().await;
        expected.attempts = 0;
        expected.crash_count = 0;
        expected.last_error = None;
        expected.finished_at = None;
        assert_eq!(node.get(id).await, expected);
        assert_eq!(node.history(id).await, history);
    }

    #[proves("requeue.fresh")]
    async fn a_requeued_dead_letter_can_be_claimed_and_end_again(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        for seq in 1..4 {
            let claimed = node.claim_one().await;
            assert_eq!(claimed.claim.token, node.token(id, seq).await);
            assert_eq!(claimed.claim.attempts, 0);
            node.fail(claimed.claim.token).await;
            assert!(node.claim(1).await.is_empty());
            node.act(id, JobAction::Requeue).await;
        }
        node.succeed(node.take().await).await;
        assert_eq!(node.history(id).await.len(), 4);
    }

    #[proves("requeue.key")]
    async fn a_requeued_job_takes_its_unique_key_again(cx: &Cx) {
        let node = cx.node().await;
        let keyed = || job().unique_key("k");
        let id = node.add(keyed()).await;
        node.fail(node.take().await).await;
        let acted = node.act(id, JobAction::Requeue).await;
        assert_eq!(acted, ActionOutcome::Became(JobState::Pending));
        assert_eq!(node.offer(&keyed()).await, Enqueued::Duplicate(id));
    }

    #[proves("requeue.key")]
    async fn a_requeue_is_refused_while_another_has_the_key(cx: &Cx) {
        let node = cx.node().await;
        let keyed = || job().unique_key("k");
        let id = node.add(keyed()).await;
        node.fail(node.take().await).await;
        let dead = node.get(id).await;
        let holder = node.add(keyed()).await;
        let acted = node.act(id, JobAction::Requeue).await;
        assert_eq!(acted, ActionOutcome::KeyTaken(holder));
        assert_eq!(node.get(id).await, dead);
        node.succeed(node.take().await).await;
        let acted = node.act(id, JobAction::Requeue).await;
        assert_eq!(acted, ActionOutcome::Became(JobState::Pending));
    }

    #[proves("requeue.key", "act.select")]
    async fn of_two_dead_letters_with_one_key_one_is_requeued(cx: &Cx) {
        let node = cx.node().await;
        let mut dead = Vec::new();
        for _ in 0..2 {
            dead.push(node.add(job().unique_key("k")).await);
            node.fail(node.take().await).await;
        }
        let free = node.add(job()).await;
        node.fail(node.take().await).await;
        dead.push(free);
        let outcomes = [
            ActionOutcome::Became(JobState::Pending),
            ActionOutcome::KeyTaken(dead[0]),
            ActionOutcome::Became(JobState::Pending),
        ];
        let acted = node
            .act_on(&JobSelector::Ids(dead.clone()), JobAction::Requeue)
            .await;
        let expected: Vec<Acted> = dead
            .iter()
            .zip(outcomes)
            .map(|(&job, outcome)| Acted { job, outcome })
            .collect();
        assert_eq!(acted, expected);
    }

    #[proves("requeue.fresh", "act.select")]
    async fn dead_letters_are_requeued_by_filter(cx: &Cx) {
        let node = cx.node().await;
        let all = node
            .add_all(&[job(), job().queue("other"), job(), job()])
            .await;
        for claimed in node.claim(3).await {
            node.fail(claimed.claim.token).await;
        }
        let selector = JobSelector::matching(JobFilter::all().queue(name("default")), 10);
        let acted = node.act_on(&selector, JobAction::Requeue).await;
        let became = |job| Acted {
            job,
            outcome: ActionOutcome::Became(JobState::Pending),
        };
        assert_eq!(acted, [became(all[0]), became(all[2])]);
        assert_eq!(node.state(all[1]).await, JobState::Failed);
    }
}
