//! Purging: only jobs that have finished, are old enough and match the request.

use super::prelude::*;

/// Enqueues a job, claims it, and settles the claim with `outcome`. Returns the job's id.
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
        // The jobs finish in a different order than they were created in.
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

    #[proves("purge.old")]
    #[needs(Clock)]
    async fn a_purge_deletes_as_many_as_asked_while_there_are_so_many(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&jobs(1_001)).await;
        node.act_on(&JobSelector::Ids(all), JobAction::Cancel).await;
        cx.advance(HOUR).await;
        for (limit, left) in [(1_000, 1), (1, 0), (1_000, 0)] {
            let before = node.everything().await.len() as u64;
            let purged = node.purge(JobState::Cancelled, MINUTE, limit).await;
            assert_eq!(purged, before - left, "up to {limit}");
            assert_eq!(node.everything().await.len() as u64, left);
        }
    }

    #[proves("purge.whole", "delete.job", "enqueue.created", "settle.repeat")]
    #[needs(Clock)]
    async fn an_id_that_is_enqueued_again_knows_nothing_of_its_former_life(cx: &Cx) {
        let node = cx.node().await;
        let bare = job();
        for purged in [true, false] {
            let rich = cx.tagged(bare.clone().unique_key("u"), "t");
            let rich = rich.timeout(HOUR).payload_version(3);
            let id = node.add(rich.priority(Priority::High).retry(RetryPolicy::never())).await;
            let token = node.take().await;
            let progress = ReportKind::Progress { percent: 7, message: "seven".to_owned() };
            node.report(token, progress).await;
            node.report(token, ReportKind::Checkpoint(json("1"))).await;
            node.settle(token, retry(Duration::ZERO)).await;
            let last = node.take().await;
            node.settle(last, result("2")).await;
            cx.advance(HOUR).await;
            if purged {
                assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 1);
            } else {
                assert_eq!(node.act(id, JobAction::Delete).await, ActionOutcome::Deleted);
            }
            node.add(bare.clone()).await;
            let now = node.now().await;
            let fresh = JobRecord::new(id, bare.spec().clone(), now, now);
            assert_eq!(node.get(id).await, fresh);
            assert_eq!(node.history(id).await, []);
            assert_eq!(node.settle(last, result("3")).await, Fenced::Stale);
            let claimed = node.claim_one().await;
            assert_eq!((claimed.claim.token.seq, claimed.claim.attempts), (1, 0));
            assert_eq!(input(&claimed).checkpoint, None);
            node.succeed(claimed.claim.token).await;
            assert_eq!(node.history(id).await.len(), 1);
            assert_eq!(node.get(id).await.result, None);
            node.act(id, JobAction::Delete).await;
        }
    }

    #[proves("purge.whole", "batch.count", "link.parents", "link.children", "signal.wait")]
    #[needs(Clock, Signals, Workflows)]
    async fn an_id_that_is_enqueued_again_has_no_links_and_no_signal_of_before(cx: &Cx) {
        let node = cx.node().await;
        let (first, second) = (node.batch().await, node.batch().await);
        let bare = job();
        let parent = node.add(job()).await;
        let linked = bare.clone().after(parent, Condition::Ended).wait_for("s", MINUTE);
        let id = node.add(linked.in_batch(first)).await;
        let child = node.add(job().after(id, Condition::Ended)).await;
        assert_eq!(node.signal("s", "1").await, Delivered::To(vec![id]));
        for job in [parent, id, child] {
            node.end(job, success()).await;
        }
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 3);
        for batch in [None, Some(second)] {
            let again = batch.map_or(bare.clone(), |batch| bare.clone().in_batch(batch));
            node.add(again.clone()).await;
            let now = node.now().await;
            assert_eq!(node.get(id).await, JobRecord::new(id, again.spec().clone(), now, now));
            assert_eq!(node.parents_of(id).await, []);
            let children = node.workflows().children_of(Parent::Job(id), 10, None).await;
            assert_eq!(ok(children), []);
            let answer = node.deliver(SignalTarget::Job(id), "2").await;
            assert_eq!(answer, Delivered::NotWaiting(JobState::Pending));
            let members = JobFilter::all().batch(first);
            assert_eq!(node.walk(&members, JobOrder::OldestFirst, 10).await, []);
            node.end(id, success()).await;
            assert_eq!(node.counts(first).await, [1, 1, 0, 0]);
            let joined = u64::from(batch.is_some());
            assert_eq!(node.counts(second).await, [joined, joined, 0, 0]);
            node.act(id, JobAction::Delete).await;
        }
        node.add(bare.wait_for("s", MINUTE)).await;
        assert_eq!(node.state(id).await, JobState::Blocked);
        assert_eq!(node.signal("s", "3").await, Delivered::To(vec![id]));
    }

    #[proves("purge.whole", "delete.job")]
    #[needs(Clock, Residue)]
    async fn a_job_that_is_gone_leaves_no_row(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(cx.rows_of_jobs().await, 0);
        for purged in [true, false] {
            for end in [success(), result("1"), Outcome::Cancelled] {
                node.add(cx.tagged(cx.tagged(job().unique_key("u"), "a"), "b")).await;
                let token = node.take().await;
                node.report(token, ReportKind::Checkpoint(json("1"))).await;
                node.settle(token, retry(Duration::ZERO)).await;
                node.settle(node.take().await, end).await;
            }
            let gone = node.add(job().expires_in(MINUTE)).await;
            node.act(gone, JobAction::Cancel).await;
            cx.advance(HOUR).await;
            let all: Vec<JobId> = node.everything().await.iter().map(|job| job.id).collect();
            assert!(cx.rows_of_jobs().await >= 4);
            if purged {
                assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 2);
                assert_eq!(node.purge(JobState::Cancelled, MINUTE, 10).await, 2);
            } else {
                node.act_on(&JobSelector::Ids(all), JobAction::Delete).await;
            }
            assert_eq!(cx.rows_of_jobs().await, 0, "purged: {purged}");
        }
    }

    #[proves("purge.whole", "delete.job", "archive.move")]
    #[needs(Archive, Clock, Residue, Signals, Workflows, Lanes, Tags)]
    async fn jobs_of_lanes_and_workflows_that_are_gone_leave_no_row(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        for way in ["purged", "archived", "deleted"] {
            let parent = node.add(job().in_batch(batch)).await;
            let waits = job().after(parent, Condition::Ended).wait_for("s", MINUTE);
            let child = node.add(waits.in_batch(batch).tag("t").unique_key("u")).await;
            let lane = node.add_all(&[job().lane("l"), job().lane("l")]).await;
            node.signal("s", r#"{"a": 1}"#).await;
            for job in [parent, lane[0], lane[1], child] {
                node.end(job, result("1")).await;
            }
            cx.advance(HOUR).await;
            assert!(cx.rows_of_jobs().await >= 4);
            let old = PurgeRequest::new(JobState::Succeeded, MINUTE, 10);
            match way {
                "purged" => drop(ok(node.jobs().purge(&old).await)),
                "archived" => {
                    let archive = node.store.archive().expect("the store should have an archive, because the case requires the power Archive");
                    assert_eq!(ok(archive.archive(&old).await), Guarded::Done(4));
                }
                _ => {
                    let all = JobSelector::Ids(vec![parent, child, lane[0], lane[1]]);
                    node.act_on(&all, JobAction::Delete).await;
                }
            }
            assert_eq!(cx.rows_of_jobs().await, 0, "{way}");
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
        node.add(cx.once(keyed(), "once")).await;
        let first = node.take().await;
        node.succeed(first).await;
        let holder = node.add(keyed()).await;
        cx.advance(HOUR).await;
        assert_eq!(node.purge(JobState::Succeeded, MINUTE, 10).await, 1);
        assert_eq!(node.offer(&keyed()).await, Enqueued::Duplicate(holder));
        if cx.has(Power::IdempotencyKeys) {
            let again = job().idempotency_key("once");
            assert_eq!(node.offer(&again).await, Enqueued::Duplicate(first.job));
        }
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
