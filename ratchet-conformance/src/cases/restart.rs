//! What remains when every process that uses the database has ended.

use std::collections::BTreeSet;

use super::prelude::*;
use crate::process::{Kept, Line};

/// Checks that the database has what a killed process was told by the store: each answered call is
/// stored. The last call has no answer, so it is stored completely or not at all. A server may
/// still finish that call while this check runs, so its state is only read once.
///
/// Returns the jobs of the answered enqueues.
async fn check_what_remains(node: &TestNode, lines: &[Line]) -> Vec<JobId> {
    let mut stored = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let is_answered = place + 1 < lines.len();
        match line {
            Line::Acquired(lock, fence) => {
                let held = ok(node.store.locks().inspect(lock).await);
                let held = held.and_then(|lock| lock.holder);
                let held = held.map(|holder| (holder.owner, holder.fence.0));
                assert_eq!(held, Some((lock.clone(), *fence)));
            }
            Line::Kept(kept) => check_kept(node, kept).await,
            Line::Enqueues(jobs) => {
                let found = node.get_all(jobs).await.into_iter().flatten().count();
                let whole = found == jobs.len();
                assert!(
                    whole || (!is_answered && found == 0),
                    "found {found} of {} jobs",
                    jobs.len()
                );
                stored.extend(jobs.iter().filter(|_| is_answered));
            }
            Line::Claimed(job) => {
                let job = node.get(*job).await;
                assert_eq!((job.state, job.claim_seq), (JobState::Running, 1));
            }
            Line::Settles(job) if is_answered => {
                let record = node.get(*job).await;
                assert_eq!(
                    (record.state, record.result),
                    (JobState::Succeeded, Some(json("7")))
                );
                assert_eq!(node.history(*job).await.len(), 1);
            }
            Line::Settles(_) | Line::Enqueued | Line::Settled => {}
        }
    }
    stored
}

/// Checks that everything remains which a killed process stored at its beginning.
async fn check_kept(node: &TestNode, kept: &Kept) {
    let name = &kept.name;
    let new = || job().queue(name.as_str());
    assert_eq!(node.pause_queue(name.as_str()).await, Changed::Unchanged);
    let unique = node.offer(&new().unique_key(name.as_str())).await;
    assert_eq!(unique, Enqueued::Duplicate(kept.unique));
    if let Some(first) = kept.once {
        let once = node.offer(&new().idempotency_key(name.as_str())).await;
        assert_eq!(once, Enqueued::Duplicate(first));
    }
    if let [head, next] = kept.lane[..] {
        let states = node.states([head, next]).await;
        assert_eq!(states, [JobState::Pending, JobState::Blocked]);
    }
    if let Some(batch) = kept.batch {
        assert_eq!(node.counts(batch).await, [1, 0, 0, 0]);
    }
    if let Some(permits) = node.store.permits() {
        let found = ok(permits.permits().await);
        assert!(
            found.contains(&PermitInfo::new(name.clone(), 1, 1)),
            "{found:?}"
        );
    }
    if node.store.recurring().is_some() {
        node.definition(name.as_str()).await;
    }
}

cases! {
    "restart" on Cx;

    /// The other process uses the clock that the store uses in production.
    #[proves("durability.restart", "enqueue.atomic", "claim.exclusive", "lock.held", "keys.unique")]
    #[needs(Clock, Processes, Restart)]
    async fn what_a_killed_process_was_told_remains(cx: &Cx) {
        let mut node = cx.node().await;
        let mut stored = BTreeSet::new();
        let mut ended = BTreeSet::new();
        for settlements in [1, 10, 3] {
            let lines = cx.run_and_kill(node, settlements).await;
            node = cx.node().await;
            stored.extend(check_what_remains(&node, &lines).await);
            ended.extend(lines.iter().filter_map(Line::taken));
        }
        let jobs = node.everything().await;
        assert!(stored.is_subset(&jobs.iter().map(|job| job.id).collect()));
        // The other process used another clock, so its jobs may become due later.
        let due = jobs.iter().map(|job| job.run_at).max().expect("there are jobs");
        let now = node.now().await;
        let wait = time::millis_between(time::to_millis(now), time::to_millis(due));
        cx.advance(wait).await;
        // Each job is claimed once: by the other process, or now.
        let claimed = node.claim_ids(jobs.len() + 3).await;
        for job in &claimed {
            assert!(!ended.contains(job), "{job} is claimed twice");
        }
        let left = node.everything().await.into_iter();
        let queue = NewJob::DEFAULT_QUEUE;
        let left = left.filter(|job| job.state == JobState::Pending && job.spec.route.queue == queue);
        assert_eq!(left.count(), 0, "expected every pending job to be claimed");
    }

    #[proves("durability.restart")]
    #[needs(Restart)]
    async fn jobs_remain_with_everything_that_is_known_of_them(cx: &Cx) {
        let node = cx.node().await;
        node.beat().await;
        let whole = cx.tagged(job(), "tenant:7").priority(Priority::High).payload_version(3);
        node.add(whole.delay(HOUR)).await;
        let paused = node.add(job()).await;
        node.act(paused, JobAction::Pause).await;
        node.add(job()).await;
        node.settle(node.take().await, result("7")).await;
        node.add(job()).await;
        let settled = node.take().await;
        node.fail(settled).await;
        let running = node.add(job()).await;
        let token = node.take().await;
        let message = "half".to_owned();
        node.report(token, ReportKind::Progress { percent: 50, message }).await;
        node.report(token, ReportKind::Checkpoint(json("[1]"))).await;
        let before = node.everything().await;
        let history = node.history(settled.job).await;
        let (id, label) = (node.id, node.label.clone());

        let mut node = cx.restart([node]).await;
        (node.id, node.label) = (id, label);
        assert_eq!(node.everything().await, before);
        assert_eq!(node.history(settled.job).await, history);
        assert_eq!(node.get(running).await.checkpoint, Some(json("[1]")));
        let claims = node.beat().await.claims;
        assert_eq!(claims, [OwnedClaim::new(token, false)]);
        // Repeats the settlement, as a node does if its process ended before the answer arrived.
        node.fail(settled).await;
        node.succeed(token).await;
    }

    #[proves("durability.restart", "keys.unique")]
    #[needs(Restart)]
    async fn unique_keys_remain(cx: &Cx) {
        let node = cx.node().await;
        let holder = node.add(job().unique_key("one")).await;
        node.take_job(holder).await;
        let node = cx.restart([node]).await;
        assert_eq!(
            node.offer(&job().unique_key("one")).await,
            Enqueued::Duplicate(holder)
        );
    }

    #[proves("durability.restart", "keys.idempotency")]
    #[needs(Restart, IdempotencyKeys)]
    async fn idempotency_keys_remain(cx: &Cx) {
        let node = cx.node().await;
        let used = node.add(job().idempotency_key("once")).await;
        node.end(used, result("1")).await;
        let node = cx.restart([node]).await;
        assert_eq!(
            node.offer(&job().idempotency_key("once")).await,
            Enqueued::Duplicate(used)
        );
    }

    #[proves("durability.restart", "lane.head", "lane.sequence")]
    #[needs(Restart, Lanes)]
    async fn lanes_remain(cx: &Cx) {
        let node = cx.node().await;
        let lane = [(); 2].map(|()| job().lane("l"));
        let [first, second] = lane.each_ref().map(NewJob::id);
        node.add_all(&lane).await;

        let node = cx.restart([node]).await;
        let third = node.add(job().lane("l")).await;
        let blocked = JobState::Blocked;
        assert_eq!(
            node.states([first, second, third]).await,
            [JobState::Pending, blocked, blocked]
        );
        node.end(first, result("1")).await;
        assert_eq!(
            node.states([second, third]).await,
            [JobState::Pending, blocked]
        );
    }

    #[proves("durability.restart", "queue.pause", "queue.pauses", "version.bump", "lock.fence")]
    #[needs(Restart)]
    async fn pauses_versions_and_locks_remain(cx: &Cx) {
        let node = cx.node().await;
        let requests = [pause_of_queue("q"), pause_of_kind("k").by("alice").reason("why")];
        for request in &requests {
            node.pause(request).await;
        }
        let pauses = node.pauses().await;
        let versions = || names(["n"]);
        let bumped = landed(ok(node.store.versions().bump(&versions()[0], None).await));
        let Acquired::Acquired { fence } = node.acquire("held", HOUR).await else {
            panic!("expected to acquire the new lock, found it held");
        };
        let Acquired::Acquired { fence: free } = node.acquire("free", HOUR).await else {
            panic!("expected to acquire the new lock, found it held");
        };
        let owner = node.label.clone();
        let released = node.store.locks().release(&name("free"), &owner, free).await;
        assert_eq!(ok(released), Fenced::Applied);

        let other = cx.restart([node]).await;
        assert_eq!(other.pauses().await, pauses);
        assert_eq!(pauses.len(), 2);
        for request in &requests {
            assert_eq!(other.pause(request).await, Changed::Unchanged);
        }
        assert_eq!(ok(other.store.versions().versions(&versions()).await), [bumped]);
        assert!(matches!(other.acquire("held", HOUR).await, Acquired::Held(_)));
        let renewed = other.store.locks().renew(&name("held"), &owner, fence, HOUR).await;
        assert_eq!(ok(renewed), Fenced::Applied);
        let next = other.acquire("free", HOUR).await;
        assert!(matches!(next, Acquired::Acquired { fence } if fence > free), "{next:?}");
    }

    #[proves("durability.restart", "permit.max")]
    #[needs(Permits, Restart)]
    async fn permits_and_their_holders_remain(cx: &Cx) {
        let node = cx.node().await;
        let permits = node.store.permits().expect("the store should support permits, because the suite was given the power Permits");
        ok(permits.set_permits(&name("api"), 1, IfKnown::Change).await);
        let holder = node.add(job().permit("api")).await;
        let token = node.take_job(holder).await;
        node.add(job().permit("api")).await;

        let node = cx.restart([node]).await;
        let permits = node.store.permits().expect("the store should support permits, because the suite was given the power Permits");
        assert_eq!(ok(permits.permits().await), [PermitInfo::new(name("api"), 1, 1)]);
        assert!(node.claim(1).await.is_empty());
        node.succeed(token).await;
        node.take().await;
    }

    #[proves("durability.restart", "rate.exact")]
    #[needs(Rates, Restart)]
    async fn used_rates_remain(cx: &Cx) {
        let node = cx.node().await;
        let rate = ratchet_core::Rate::new(1, HOUR);
        let request = [RateRequest::new(name("key"), rate)];
        let take = async |node: &TestNode| {
            let rates = node.store.rates().expect("the store should support rate limits, because the suite was given the power Rates");
            ok(rates.take(&request).await).remove(0)
        };
        assert_eq!(take(&node).await, RateAnswer::Granted);
        let node = cx.restart([node]).await;
        assert!(matches!(take(&node).await, RateAnswer::Wait(_)));
    }

    #[proves("durability.restart", "recurring.fire")]
    #[needs(Clock, Recurring, Restart)]
    async fn definitions_and_their_claims_remain(cx: &Cx) {
        let node = cx.node().await;
        let put = node.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        let firing = node.plan_one().await;
        let claimed = node.definition("n").await;
        assert_ne!(claimed, put);

        let node = cx.restart([node]).await;
        assert_eq!(node.definition("n").await, claimed);
        assert!(matches!(node.fire(&firing).await, Fired::Applied(_)));
    }

    #[proves("durability.restart", "link.decide", "batch.count", "signal.deliver")]
    #[needs(Restart, Signals, Workflows)]
    async fn links_batches_and_waits_remain(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let parent = node.add(job().in_batch(batch)).await;
        let child = node.add(job().after(parent, Condition::Succeeded)).await;
        let callback = node.add(job().after_batch(batch, BatchCondition::Ended)).await;
        let waiting = node.add(job().wait_for("paid", HOUR)).await;
        node.close(batch).await;

        let node = cx.restart([node]).await;
        let blocked = JobState::Blocked;
        assert_eq!(node.states([child, callback, waiting]).await, [blocked; 3]);
        node.end(parent, result("1")).await;
        assert_eq!(node.counts(batch).await, [1, 1, 0, 0]);
        assert_eq!(node.signal("paid", "1").await, Delivered::To(vec![waiting]));
        let pending = JobState::Pending;
        assert_eq!(node.states([child, callback, waiting]).await, [pending; 3]);
    }

    #[proves("durability.restart", "archive.move")]
    #[needs(Archive, Clock, Restart)]
    async fn archived_jobs_remain(cx: &Cx) {
        let node = cx.node().await;
        let ended = node.add(job()).await;
        node.end(ended, result("1")).await;
        cx.advance(HOUR).await;
        let archive = node.store.archive().expect("the store should have an archive, because the suite was given the power Archive");
        let old = PurgeRequest::new(JobState::Succeeded, MINUTE, 10);
        assert_eq!(landed(ok(archive.archive(&old).await)), 1);
        let before = ok(archive.archived(&[ended]).await);
        assert!(before[0].is_some());

        let node = cx.restart([node]).await;
        let archive = node.store.archive().expect("the store should have an archive, because the suite was given the power Archive");
        assert_eq!(ok(archive.archived(&[ended]).await), before);
    }
}
