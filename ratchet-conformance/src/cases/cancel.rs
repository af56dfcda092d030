//! Cancellation: waiting jobs end at once, and running jobs get a request to end.

use super::prelude::*;

cases! {
    "cancel" on Cx;

    #[proves("cancel.waiting")]
    async fn a_cancelled_waiting_job_is_never_claimed(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let due = a.add(job()).await;
        let later = a.add(job().delay(HOUR)).await;
        let paused = a.add(job()).await;
        a.act(paused, JobAction::Pause).await;
        for id in [due, later, paused] {
            let acted = b.act(id, JobAction::Cancel).await;
            assert_eq!(acted, ActionOutcome::Became(JobState::Cancelled));
            let stored = a.get(id).await;
            assert_eq!(stored.state, JobState::Cancelled);
            assert!(stored.finished_at.is_some() && !stored.cancel_requested);
            assert_eq!((stored.attempts, stored.claim_seq), (0, 0));
        }
        assert!(a.claim(10).await.is_empty());
        assert_eq!(a.history(due).await, []);
    }

    #[proves("cancel.waiting")]
    async fn a_cancelled_waiting_job_frees_its_unique_key(cx: &Cx) {
        let node = cx.node().await;
        for pause in [false, true] {
            let id = node.add(job().unique_key("k")).await;
            if pause {
                node.act(id, JobAction::Pause).await;
            }
            node.act(id, JobAction::Cancel).await;
        }
        node.add(job().unique_key("k")).await;
    }

    #[proves("cancel.running", "node.cancel")]
    async fn a_running_job_keeps_its_claim_and_its_node_is_told(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let id = a.add(job()).await;
        let token = a.take().await;
        assert_eq!(a.beat().await.cancel_requested(), []);
        let mut expected = a.get(id).await;
        assert_eq!(
            b.act(id, JobAction::Cancel).await,
            ActionOutcome::CancelRequested
        );
        expected.cancel_requested = true;
        assert_eq!(a.get(id).await, expected);
        for _ in 0..2 {
            assert_eq!(a.beat().await.cancel_requested(), [token]);
        }
        assert_eq!(b.beat().await.cancel_requested(), []);
        a.settle(token, Outcome::Cancelled).await;
        assert_eq!(a.beat().await.cancel_requested(), []);
        assert_eq!(a.state(id).await, JobState::Cancelled);
    }

    #[proves("cancel.running", "act.respond")]
    async fn asking_twice_changes_nothing_more(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        node.take().await;
        node.act(id, JobAction::Cancel).await;
        let asked = node.get(id).await;
        assert_eq!(
            node.act(id, JobAction::Cancel).await,
            ActionOutcome::CancelRequested
        );
        assert_eq!(node.get(id).await, asked);
    }

    #[proves("cancel.running", "settle.cancel")]
    async fn the_result_of_a_cancelled_run_is_dropped(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().unique_key("k")).await;
        let token = node.take().await;
        node.act(id, JobAction::Cancel).await;
        assert_eq!(node.settle(token, result("42")).await, Fenced::Applied);
        let stored = node.get(id).await;
        assert_eq!((stored.state, stored.result), (JobState::Cancelled, None));
        node.add(job().unique_key("k")).await;
    }

    #[proves("cancel.running", "node.cancel")]
    async fn one_heartbeat_tells_of_many_cancels(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(300)).await;
        let mut tokens: Vec<ClaimToken> = node
            .claim(300)
            .await
            .iter()
            .map(|job| job.claim.token)
            .collect();
        let acted = node.act_on(&JobSelector::Ids(all), JobAction::Cancel).await;
        assert!(
            acted
                .iter()
                .all(|one| one.outcome == ActionOutcome::CancelRequested)
        );
        tokens.sort();
        assert_eq!(node.beat().await.cancel_requested(), tokens);
    }

    #[proves("act.respond")]
    async fn a_cancel_after_the_end_is_refused(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job()).await;
        node.succeed(node.take().await).await;
        let ended = node.get(id).await;
        let acted = node.act(id, JobAction::Cancel).await;
        assert_eq!(acted, ActionOutcome::Refused(JobState::Succeeded));
        assert_eq!(node.get(id).await, ended);
    }

    #[proves("cancel.waiting", "act.select")]
    async fn jobs_are_cancelled_by_filter_whether_they_wait_or_run(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(3)).await;
        let token = node.take().await;
        node.succeed(token).await;
        node.take().await;
        let everything = JobSelector::matching(JobFilter::all(), 10);
        let acted = node.act_on(&everything, JobAction::Cancel).await;
        let expected = [
            Acted {
                job: all[1],
                outcome: ActionOutcome::CancelRequested,
            },
            Acted {
                job: all[2],
                outcome: ActionOutcome::Became(JobState::Cancelled),
            },
        ];
        assert_eq!(acted, expected);
    }
}
