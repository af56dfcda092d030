//! Purging: only what is finished, old, and asked for.

use super::prelude::*;

/// Enqueues a job and ends it like this.
async fn ended(node: &TestNode, outcome: Outcome) -> JobId {
    let id = node.add(job()).await;
    let token = node.take().await;
    assert_eq!(node.settle(token, outcome).await, Fenced::Applied);
    id
}

fn success() -> Outcome {
    Outcome::Succeeded { result: None }
}

cases! {
    "purge" on Cx;

    #[proves("purge.old", "time.clock", "time.precision")]
    #[needs(Clock)]
    async fn a_job_is_purged_when_it_is_older_than_asked_and_not_before(cx: &Cx) {
        let node = cx.node().await;
        let id = ended(&node, success()).await;
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, HOUR, 10).await, 0);
        assert!(node.find(id).await.is_some());
        cx.advance(MILLI).await;
        assert_eq!(node.purge(JobState::Succeeded, HOUR, 10).await, 1);
        assert_eq!(node.find(id).await, None);
        assert_eq!(node.purge(JobState::Succeeded, HOUR, 10).await, 0);
    }

    #[proves("purge.old")]
    #[needs(Clock)]
    async fn only_the_state_asked_for_is_purged(cx: &Cx) {
        let node = cx.node().await;
        let error = "it failed".to_owned();
        let ends = [
            (JobState::Succeeded, success()),
            (JobState::Failed, Outcome::Failed { error }),
            (JobState::Cancelled, Outcome::Cancelled),
        ];
        let mut all = Vec::new();
        for (state, outcome) in ends {
            all.push((state, ended(&node, outcome).await));
        }
        cx.advance(HOUR).await;
        while let Some((state, id)) = all.pop() {
            assert_eq!(node.purge(state, MINUTE, 10).await, 1);
            assert_eq!(node.find(id).await, None);
            assert_eq!(node.everything().await.len(), all.len());
        }
    }

    #[proves("purge.old")]
    #[needs(Clock)]
    async fn unfinished_jobs_are_never_purged(cx: &Cx) {
        let node = cx.node().await;
        let running = node.add(job()).await;
        node.take().await;
        let waiting = node.add(job()).await;
        let paused = node.add(job()).await;
        node.act(paused, JobAction::Pause).await;
        let requeued = node.add(job()).await;
        node.act(waiting, JobAction::Pause).await;
        node.fail(node.take().await).await;
        node.act(requeued, JobAction::Requeue).await;
        node.act(waiting, JobAction::Resume).await;
        cx.advance(1_000 * DAY).await;
        for state in [JobState::Succeeded, JobState::Failed, JobState::Cancelled] {
            assert_eq!(node.purge(state, Duration::ZERO, 10).await, 0);
        }
        for id in [running, waiting, paused, requeued] {
            assert!(node.find(id).await.is_some());
        }
    }

    #[proves("purge.old")]
    #[needs(Clock)]
    async fn the_longest_finished_go_first_and_at_most_the_limit(cx: &Cx) {
        let node = cx.node().await;
        let mut all = node.add_all(&jobs(5)).await;
        let mut claimed = node.claim(5).await;
        // They finish in another order than they were made in.
        claimed.rotate_left(2);
        all.rotate_left(2);
        for job in claimed {
            node.succeed(job.claim.token).await;
            cx.advance(SECOND).await;
        }
        cx.advance(HOUR).await;
        for gone in [2, 4, 5] {
            let before = node.everything().await.len();
            let purged = node.purge(JobState::Succeeded, MINUTE, 2).await;
            let left = node.everything().await.len();
            assert_eq!(usize::try_from(purged), Ok(before - left));
            for (number, id) in all.iter().enumerate() {
                assert_eq!(node.find(*id).await.is_some(), number >= gone);
            }
        }
    }

    #[proves("purge.old", "history.order")]
    #[needs(Clock)]
    async fn the_history_goes_with_its_job(cx: &Cx) {
        let node = cx.node().await;
        let id = ended(&node, success()).await;
        let kept = ended(&node, Outcome::Cancelled).await;
        cx.advance(HOUR).await;
        node.purge(JobState::Succeeded, MINUTE, 10).await;
        assert_eq!(node.history(id).await, []);
        assert_eq!(node.history(kept).await.len(), 1);
    }

    #[proves("purge.keys")]
    #[needs(Clock)]
    async fn a_purge_touches_no_key_that_is_in_use(cx: &Cx) {
        let node = cx.node().await;
        let keyed = || job().unique_key("unique");
        node.add(keyed().idempotency_key("once")).await;
        let first = node.take().await;
        node.succeed(first).await;
        let holder = node.add(keyed()).await;
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 1);
        assert_eq!(node.offer(&keyed()).await, Enqueued::Duplicate(holder));
        let again = job().idempotency_key("once");
        assert_eq!(node.offer(&again).await, Enqueued::Duplicate(first.job));
    }

    #[proves("purge.old", "errors.kind")]
    async fn a_purge_of_living_jobs_or_without_a_limit_is_refused(cx: &Cx) {
        let node = cx.node().await;
        for state in JobState::ALL
            .into_iter()
            .filter(|state| !state.is_terminal())
        {
            let request = PurgeRequest::new(state, HOUR, 10);
            assert_refused(node.jobs().purge(&request).await, "state");
        }
        for limit in [0, 10_001] {
            let request = PurgeRequest::new(JobState::Failed, HOUR, limit);
            assert_refused(node.jobs().purge(&request).await, "limit");
        }
    }
}
