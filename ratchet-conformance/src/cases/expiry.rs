//! Expiries: jobs that end if they have not begun in time.

use JobState::{Blocked, Cancelled, Failed, Paused, Pending, Running};
use ratchet_core::OnConflict;

use super::prelude::*;

/// Returns a new job that expires after a minute.
fn fleeting() -> NewJob {
    job().expires_in(MINUTE)
}

/// Asserts that a job ended as expired just now, without an attempt.
async fn assert_expired(node: &TestNode, id: JobId) {
    let record = node.get(id).await;
    assert_eq!((record.state, record.attempts), (Cancelled, 0));
    assert_eq!(record.finished_at, Some(node.now().await));
    assert!(record.is_expired(), "the job should keep its expiry");
}

cases! {
    "expiry" on Cx;

    #[proves("expiry.enqueue", "expiry.pass", "expiry.kept", "settle.keys")]
    #[needs(Clock)]
    async fn a_job_that_has_not_begun_ends_at_its_expiry_and_not_before(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(fleeting().unique_key("u")).await;
        let plain = node.add(job()).await;
        cx.proving(["expiry.enqueue"]);
        let stored = node.get(id).await;
        assert_eq!(stored.expires_at, Some(time::add(stored.created_at, MINUTE)));
        assert_eq!(node.get(plain).await.expires_at, None);
        cx.proving(["expiry.pass"]);
        cx.advance(MINUTE - MILLI).await;
        assert_eq!(node.expire_jobs(10).await, []);
        assert_eq!(node.state(id).await, Pending);
        cx.advance(MILLI).await;
        assert_eq!(node.expire_jobs(10).await, [id]);
        assert_expired(&node, id).await;
        assert_eq!(node.get(id).await.claim_seq, 0);
        assert_eq!(node.history(id).await, []);
        cx.proving(["expiry.kept"]);
        assert_eq!(node.get(id).await.expires_at, stored.expires_at);
        cx.proving(["expiry.pass"]);
        assert_eq!(node.expire_jobs(10).await, []);
        assert_eq!(node.claim_ids(10).await, [plain]);
        cx.proving(["settle.keys"]);
        node.add(job().unique_key("u")).await;
    }

    #[proves("expiry.enqueue", "expiry.pass")]
    #[needs(Clock)]
    async fn a_time_of_expiry_is_kept_as_it_is(cx: &Cx) {
        let node = cx.node().await;
        let now = node.now().await;
        let later = time::add(now, 2 * MINUTE);
        let due = time::add(now, MINUTE);
        let first = node.add(job().run_at(due).expires_at(later)).await;
        // The time has already passed.
        let past = node.add(job().expires_at(now - HOUR)).await;
        let delayed = node.add(job().delay(MINUTE).expires_in(MINUTE + MILLI)).await;
        cx.proving(["expiry.enqueue"]);
        assert_eq!(node.get(first).await.expires_at, Some(later));
        assert_eq!(node.get(past).await.expires_at, Some(now - HOUR));
        let stored = node.get(delayed).await;
        assert_eq!(stored.expires_at, Some(time::add(stored.created_at, MINUTE + MILLI)));
        cx.proving(["expiry.pass"]);
        assert_eq!(node.expire_jobs(10).await, [past]);
        cx.advance(MINUTE + MILLI).await;
        assert_eq!(node.expire_jobs(10).await, [delayed]);
        assert_eq!(node.claim_ids(10).await, [first]);
    }

    #[proves("expiry.pass", "fair.idle")]
    #[needs(Clock)]
    async fn a_job_expires_whatever_it_waits_for(cx: &Cx) {
        let node = cx.node().await;
        let mut late = vec![node.add(fleeting().delay(MINUTE - MILLI)).await];
        late.push(node.add(fleeting()).await);
        node.act(late[1], JobAction::Pause).await;
        assert_eq!(node.state(late[1]).await, Paused);
        late.push(node.add(fleeting().queue("paused")).await);
        node.pause_queue("paused").await;
        late.push(node.add(fleeting().capability("rare")).await);
        if cx.has(Power::FairKeys) {
            late.push(node.add(fleeting().fair_key("f")).await);
        }
        if cx.has(Power::Signals) {
            late.push(node.add(fleeting().wait_for("s", HOUR)).await);
        }
        let mut blocked = None;
        if cx.has(Power::Workflows) {
            let parent = node.add(job().delay(HOUR)).await;
            let child = node.add(fleeting().after(parent, Condition::Ended)).await;
            late.push(child);
            blocked = Some(child);
        }
        if let Some(blocked) = blocked {
            assert_eq!(node.state(blocked).await, Blocked);
        }
        cx.advance(MINUTE).await;
        late.sort_unstable();
        assert_eq!(node.expire_jobs(10).await, late);
        for id in late {
            assert_expired(&node, id).await;
        }
        assert_eq!(node.expire_jobs(10).await, []);
    }

    #[proves("expiry.pass", "lane.promote")]
    #[needs(Clock, Lanes)]
    async fn a_lane_continues_after_a_job_that_expired(cx: &Cx) {
        let node = cx.node().await;
        let head = node.add(fleeting().lane("l").delay(SECOND)).await;
        let second = node.add(fleeting().lane("l")).await;
        let third = node.add(job().lane("l")).await;
        assert_eq!(node.states([head, second, third]).await, [Pending, Blocked, Blocked]);
        cx.advance(MINUTE).await;
        cx.proving(["expiry.pass"]);
        let mut late = vec![head, second];
        late.sort_unstable();
        assert_eq!(node.expire_jobs(10).await, late);
        cx.proving(["lane.promote"]);
        assert_eq!(node.state(third).await, Pending);
        assert_eq!(node.claim_ids(10).await, [third]);
    }

    #[proves("expiry.pass", "link.decide", "batch.count", "batch.callback")]
    #[needs(Clock, Workflows)]
    async fn an_expiry_is_an_end_like_any_other(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let late = node.add(fleeting().in_batch(batch)).await;
        let good = node.add(job().after(late, Condition::Succeeded)).await;
        let any = node.add(job().after(late, Condition::Ended)).await;
        let done = node.add(job().after_batch(batch, BatchCondition::Ended)).await;
        node.close(batch).await;
        cx.advance(MINUTE).await;
        cx.proving(["expiry.pass"]);
        assert_eq!(node.expire_jobs(10).await, [late]);
        cx.proving(["link.decide", "batch.callback"]);
        assert_eq!(node.states([good, any, done]).await, [Cancelled, Pending, Pending]);
        assert!(!node.get(good).await.is_expired());
        cx.proving(["batch.count"]);
        assert_eq!(node.counts(batch).await, [1, 0, 0, 1]);
    }

    #[proves("expiry.limit")]
    #[needs(Clock)]
    async fn a_pass_ends_the_longest_overdue_jobs_up_to_its_limit(cx: &Cx) {
        let node = cx.node().await;
        // Jobs that were cancelled before their expiry do not count.
        let gone = node.add_all(&[job().expires_in(MILLI), job().expires_in(MILLI)]).await;
        for id in &gone {
            node.act(*id, JobAction::Cancel).await;
        }
        let mut all = Vec::new();
        for seconds in [3, 1, 2, 9] {
            all.push(node.add(job().expires_in(seconds * SECOND)).await);
        }
        cx.advance(8 * SECOND).await;
        assert_eq!(node.expire_jobs(2).await, [all[1], all[2]]);
        assert_eq!(node.expire_jobs(2).await, [all[0]]);
        assert_eq!(node.expire_jobs(2).await, []);
        assert_eq!(node.state(all[3]).await, Pending);
        assert!(!node.get(gone[0]).await.is_expired());
        assert_refused(node.jobs().expire_jobs(0).await, "limit");
    }

    #[proves("expiry.begun", "expiry.claim", "expiry.pass")]
    #[needs(Clock)]
    async fn a_job_that_has_begun_never_expires(cx: &Cx) {
        let node = cx.node().await;
        let progress = ReportKind::Progress { percent: 1, message: "1 of 100".to_owned() };
        let ends = [
            (ReportKind::Alive, retry(Duration::ZERO)),
            (progress, Outcome::Snoozed { delay: Duration::ZERO }),
            (ReportKind::Checkpoint(json("1")), Outcome::Released),
            (ReportKind::Alive, Outcome::Undelivered),
        ];
        for (report, end) in ends {
            let id = node.add(fleeting()).await;
            let expiry = node.get(id).await.expires_at;
            cx.advance(MINUTE - MILLI).await;
            cx.proving(["expiry.claim"]);
            let first = node.claim_one().await.claim;
            assert_eq!((first.token.job, first.expires_at), (id, expiry));
            assert!(!first.is_expired_after(Duration::ZERO));
            assert_eq!(node.get(id).await.expires_at, expiry);
            cx.proving(["expiry.pass"]);
            cx.advance(MINUTE).await;
            assert_eq!(node.expire_jobs(10).await, []);
            assert_eq!(node.state(id).await, Running);
            cx.proving(["expiry.begun"]);
            let reported = node.report(first.token, report).await;
            assert!(matches!(reported, Reported::Applied { .. }), "{reported:?}");
            assert_eq!(node.get(id).await.expires_at, None, "{end:?}");
            node.settle(first.token, end.clone()).await;
            assert_eq!(node.get(id).await.expires_at, None, "{end:?}");
            assert_eq!(node.expire_jobs(10).await, [], "{end:?}");
            let again = node.claim_one().await.claim;
            assert_eq!((again.token.seq, again.expires_at), (2, None), "{end:?}");
            // A job that was cancelled after its body had begun did not expire.
            node.settle(again.token, Outcome::Cancelled).await;
            assert!(!node.get(id).await.is_expired());
        }
    }

    #[proves("expiry.begun", "expiry.pass", "report.token", "settle.cancel")]
    #[needs(Clock)]
    async fn a_claim_that_comes_back_without_a_body_leaves_the_expiry(cx: &Cx) {
        let node = cx.node().await;
        let ends = [
            Outcome::Released,
            Outcome::Undelivered,
            Outcome::Snoozed { delay: Duration::ZERO },
            Outcome::Snoozed { delay: HOUR },
        ];
        for end in ends {
            // The first comes back before its expiry, the second after it.
            let first = node.add(fleeting()).await;
            let token = node.take().await;
            let second = node.add(fleeting()).await;
            let late = node.take().await;
            assert_eq!((token.job, late.job), (first, second));
            let expiry = node.get(first).await.expires_at;
            cx.proving(["expiry.begun"]);
            node.settle(token, end.clone()).await;
            assert_eq!(node.get(first).await.expires_at, expiry, "{end:?}");
            cx.proving(["report.token"]);
            assert_eq!(node.report(token, ReportKind::Alive).await, Reported::Stale);
            assert_eq!(node.get(first).await.expires_at, expiry, "{end:?}");
            cx.proving(["expiry.pass"]);
            cx.advance(MINUTE).await;
            assert_eq!(node.expire_jobs(10).await, [first], "{end:?}");
            assert_expired(&node, first).await;
            node.settle(late, end.clone()).await;
            assert_eq!(node.expire_jobs(10).await, [second], "{end:?}");
            assert_expired(&node, second).await;
        }
        cx.proving(["settle.cancel", "expiry.begun"]);
        let cancelled = node.add(fleeting()).await;
        let token = node.take().await;
        node.act(cancelled, JobAction::Cancel).await;
        cx.advance(MINUTE).await;
        node.release(token).await;
        assert_expired(&node, cancelled).await;
    }

    #[proves("expiry.begun", "reclaim.requeue")]
    #[needs(Clock)]
    async fn a_job_whose_body_was_lost_never_expires(cx: &Cx) {
        let (crashed, left) = (cx.node().await, cx.node().await);
        for node in [&crashed, &left] {
            node.beat().await;
            node.add(fleeting()).await;
            let token = node.take().await;
            node.alive(token).await;
        }
        left.beat_with(&left.heartbeat(NodeStatus::Left)).await;
        cx.advance(HOUR).await;
        let node = cx.node().await;
        let lost = node.reclaim(&reclaim()).await;
        assert_eq!(lost.len(), 2);
        for lost in lost {
            assert_eq!(node.get(lost.token.job).await.expires_at, None, "{lost:?}");
        }
        assert_eq!(node.expire_jobs(10).await, []);
        let claimed = node.claim(3).await;
        assert_eq!(claimed.len(), 2);
        for claimed in claimed {
            assert_eq!(claimed.claim.expires_at, None);
        }
    }

    #[proves("expiry.begun", "expiry.pass", "reclaim.left", "reclaim.dead", "reclaim.start")]
    #[needs(Clock)]
    async fn a_claim_that_was_lost_before_its_body_began_leaves_the_expiry(cx: &Cx) {
        let (node, left, crashed) = (cx.node().await, cx.node().await, cx.node().await);
        let reasons = [
            (&left, ReclaimReason::OwnerLeft),
            (&crashed, ReclaimReason::OwnerLost),
            (&node, ReclaimReason::NotStarted),
        ];
        let (mut late, mut expected) = (Vec::new(), Vec::new());
        for (owner, reason) in reasons {
            owner.beat().await;
            let id = owner.add(fleeting()).await;
            owner.take().await;
            late.push(id);
            expected.push((id, reason));
        }
        // Another job that was claimed by the node that crashed has begun.
        let begun = crashed.add(fleeting()).await;
        let token = crashed.take().await;
        crashed.alive(token).await;
        expected.push((begun, ReclaimReason::OwnerLost));
        left.beat_with(&left.heartbeat(NodeStatus::Left)).await;
        cx.advance(HOUR).await;
        node.beat().await;
        assert_eq!(node.expire_jobs(10).await, []);
        let lost = node.reclaim(&reclaim()).await;
        let mut reasons: Vec<_> = lost.iter().map(|lost| (lost.token.job, lost.reason)).collect();
        reasons.sort_by_key(|(job, _)| *job);
        expected.sort_by_key(|(job, _)| *job);
        assert_eq!(reasons, expected);
        late.sort_unstable();
        assert_eq!(node.expire_jobs(10).await, late);
        for id in late {
            assert_expired(&node, id).await;
        }
        assert_eq!(node.state(begun).await, Pending);
    }

    #[proves("expiry.claim", "expiry.pass", "expiry.kept", "settle.history")]
    #[needs(Clock)]
    async fn a_job_that_is_claimed_after_its_expiry_has_not_begun(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(fleeting()).await;
        let expiry = node.get(id).await.expires_at;
        cx.advance(MINUTE).await;
        for end in [Outcome::Released, Outcome::Undelivered] {
            cx.proving(["expiry.claim"]);
            let claim = node.claim_one().await.claim;
            assert_eq!((claim.token.job, claim.expires_at), (id, expiry));
            assert!(claim.is_expired_after(Duration::ZERO));
            assert_eq!(node.get(id).await.expires_at, expiry);
            cx.proving(["expiry.pass"]);
            assert_eq!(node.expire_jobs(10).await, []);
            assert_eq!(node.state(id).await, Running);
            node.settle(claim.token, end).await;
        }
        cx.proving(["expiry.claim"]);
        let claim = node.claim_lean(&node.request(1)).await.remove(0);
        assert_eq!((claim.token.seq, claim.expires_at), (3, expiry));
        let ended = node.settle(claim.token, Outcome::Expired).await;
        assert_eq!(ended, Fenced::Applied);
        cx.proving(["expiry.kept"]);
        assert_expired(&node, id).await;
        cx.proving(["settle.history"]);
        let history = node.history(id).await;
        assert_eq!(history.len(), 3);
        let last = &history[2];
        assert_eq!((last.outcome, &last.error), (AttemptOutcome::Expired, &None));
        cx.proving(["expiry.pass"]);
        assert_eq!(node.expire_jobs(10).await, []);
    }

    #[proves("expiry.claim", "expiry.pass")]
    #[needs(Clock)]
    async fn a_late_claim_that_was_handed_back_leaves_the_job_to_a_pass(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(fleeting()).await;
        cx.advance(MINUTE).await;
        let token = node.take().await;
        node.release(token).await;
        assert_eq!(node.expire_jobs(10).await, [id]);
        assert_expired(&node, id).await;
        assert_eq!(node.get(id).await.claim_seq, 1);
    }

    #[proves("expiry.claim", "expiry.pass", "permit.order")]
    #[needs(Clock, Permits)]
    async fn a_job_that_got_no_permit_has_not_begun(cx: &Cx) {
        let node = cx.node().await;
        let permits = node.store.permits().expect("the case requires permits");
        ok(permits.set_permits(&name("p"), 1, IfKnown::Change).await);
        let ids = node.add_all(&[fleeting().permit("p"), fleeting().permit("p")]).await;
        let claimed = node.claim(10).await;
        assert_eq!(self::ids(&claimed), [ids[0]]);
        assert_eq!(claimed[0].claim.expires_at, node.get(ids[0]).await.expires_at);
        cx.advance(MINUTE).await;
        assert_eq!(node.expire_jobs(10).await, [ids[1]]);
    }

    #[proves("expiry.requeue", "requeue.fresh")]
    #[needs(Clock)]
    async fn a_requeued_job_does_not_expire(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(fleeting()).await;
        cx.advance(MINUTE).await;
        // The job becomes a dead letter without a body, so it keeps its expiry until the requeue.
        let token = node.take().await;
        let failed = Outcome::Failed { error: "unreadable".to_owned() };
        let failed = Settlement::new(token, failed).without_attempt();
        assert_eq!(node.settle_all(&[failed]).await, [Fenced::Applied]);
        let dead = node.get(id).await;
        assert_eq!((dead.state, dead.is_expired()), (Failed, false));
        assert!(dead.expires_at.is_some());
        assert_eq!(node.act(id, JobAction::Requeue).await, ActionOutcome::Became(Pending));
        assert_eq!(node.get(id).await.expires_at, None);
        cx.advance(HOUR).await;
        assert_eq!(node.expire_jobs(10).await, []);
        let claim = node.claim_one().await.claim;
        assert_eq!((claim.token.job, claim.expires_at), (id, None));
    }

    #[proves("expiry.replace", "expiry.pass")]
    #[needs(Clock, Workflows)]
    async fn a_waiting_holder_gets_the_expiry_of_the_new_job(cx: &Cx) {
        let node = cx.node().await;
        let changes = [
            OnConflict::Replace,
            OnConflict::Debounce { max_delay: HOUR },
            OnConflict::Restart,
        ];
        for how in changes {
            let new = || job().unique_key("u").delay(SECOND).on_conflict(how);
            let replaced = async |new: NewJob| {
                let answer = node.offer(&new).await;
                let Enqueued::Replaced(holder) = answer else {
                    panic!("expected a replacement, found {answer:?}");
                };
                node.get(holder).await.expires_at
            };
            let in_a_minute = async || Some(time::add(node.now().await, MINUTE));
            let id = node.add(new()).await;
            cx.proving(["expiry.replace"]);
            assert_eq!(replaced(new().expires_in(MINUTE)).await, in_a_minute().await);
            cx.advance(MINUTE - MILLI).await;
            assert_eq!(replaced(new().expires_in(MINUTE)).await, in_a_minute().await);
            cx.proving(["expiry.pass"]);
            cx.advance(MINUTE - MILLI).await;
            assert_eq!(node.expire_jobs(10).await, [], "{how:?}");
            cx.proving(["expiry.replace"]);
            assert_eq!(replaced(new()).await, None);
            cx.advance(MINUTE).await;
            assert_eq!(node.expire_jobs(10).await, [], "{how:?}");
            assert_eq!(replaced(new().expires_in(MINUTE)).await, in_a_minute().await);
            cx.proving(["expiry.pass"]);
            cx.advance(MINUTE).await;
            assert_eq!(node.expire_jobs(10).await, [id], "{how:?}");
            assert_expired(&node, id).await;
        }
    }

    #[proves("expiry.replace", "expiry.pass")]
    #[needs(Clock, Workflows)]
    async fn a_holder_that_has_begun_gets_the_expiry_of_the_new_job(cx: &Cx) {
        let node = cx.node().await;
        let how = OnConflict::Replace;
        for first in [fleeting().unique_key("u"), job().unique_key("u")] {
            let id = node.add(first).await;
            // The holder was claimed, and has begun with its old payload.
            let token = node.take().await;
            node.release(token).await;
            let token = node.take().await;
            node.alive(token).await;
            node.settle(token, retry(Duration::ZERO)).await;
            let new = fleeting().unique_key("u").on_conflict(how);
            cx.proving(["expiry.replace"]);
            assert_eq!(node.offer(&new).await, Enqueued::Replaced(id));
            let expiry = time::add(node.now().await, MINUTE);
            assert_eq!(node.get(id).await.expires_at, Some(expiry));
            cx.proving(["expiry.pass"]);
            cx.advance(MINUTE).await;
            assert_eq!(node.expire_jobs(10).await, [id]);
            assert!(node.get(id).await.is_expired());
        }
    }

    #[proves("expiry.kept", "archive.move")]
    #[needs(Clock, Archive)]
    async fn an_archived_job_says_that_it_expired(cx: &Cx) {
        let node = cx.node().await;
        let late = node.add(fleeting()).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.expire_jobs(10).await, [late]);
        let before = node.get(late).await;
        cx.advance(SECOND).await;
        let archive = node.store.archive().expect("the case requires an archive");
        let request = PurgeRequest::new(Cancelled, Duration::ZERO, 10);
        assert_eq!(landed(ok(archive.archive(&request).await)), 1);
        let archived = ok(archive.archived(&[late]).await).remove(0);
        let job = archived.expect("the job should be archived").job;
        assert_eq!(job, before);
        assert!(job.is_expired());
    }

    #[proves("expiry.pass", "expiry.claim")]
    #[needs(Clock)]
    async fn of_a_pass_and_a_claim_one_gets_each_job(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for _ in 0..5 {
            let new: Vec<NewJob> = (0..20).map(|_| fleeting()).collect();
            let mut all = nodes[0].add_all(&new).await;
            cx.advance(MINUTE).await;
            let won = race(4, |racer| {
                let node = nodes[racer].clone();
                async move {
                    match racer % 2 {
                        0 => node.expire_jobs(100).await,
                        _ => node.claim_ids(100).await,
                    }
                }
            })
            .await;
            // A call may leave out jobs that another call has locked.
            let rest = nodes[0].expire_jobs(100).await;
            let mut ended: Vec<JobId> = won.into_iter().flatten().chain(rest).collect();
            ended.sort_unstable();
            all.sort_unstable();
            assert_eq!(ended, all);
            for record in nodes[0].get_all(&all).await.into_iter().flatten() {
                match record.state {
                    Running => {
                        let token = Claim::of(&record).token;
                        nodes[0].settle(token, Outcome::Expired).await;
                    }
                    state => assert_eq!(state, Cancelled),
                }
            }
        }
    }
}
