//! Links: jobs that wait for the ends of other jobs.

use JobState::{Blocked, Cancelled, Failed, Pending, Running, Succeeded};
use LinkState::{Met, Open, Unmet};

use super::prelude::*;

pub(super) fn failed() -> Outcome {
    let error = "it failed".to_owned();
    Outcome::Failed { error }
}

pub(super) fn succeeded() -> Outcome {
    Outcome::Succeeded { result: None }
}

/// Returns a new job that waits until `parent` succeeds.
pub(super) fn child(parent: JobId) -> NewJob {
    job().after(parent, Condition::Succeeded)
}

/// Returns a new job that waits until `parent` ends, whether or not it succeeds.
pub(super) fn follower(parent: JobId) -> NewJob {
    job().after(parent, Condition::Ended)
}

/// Ends `job` in the way that `way` names, for example `success` or `failure`.
async fn end(node: &TestNode, cx: &Cx, job: JobId, way: &str) {
    match way {
        "success" => node.end(job, succeeded()).await,
        "failure" => node.end(job, failed()).await,
        "cancelled by its body" => node.end(job, Outcome::Cancelled).await,
        "cancelled while it waits" => {
            let outcome = node.act(job, JobAction::Cancel).await;
            assert_eq!(outcome, ActionOutcome::Became(Cancelled));
        }
        "cancelled while it runs" => {
            let token = node.take_job(job).await;
            node.act(job, JobAction::Cancel).await;
            node.settle(token, retry(SECOND)).await;
        }
        "reclaimed with a cancellation" => {
            let lost = node.sibling();
            lost.take_job(job).await;
            node.act(job, JobAction::Cancel).await;
            cx.advance(HOUR).await;
            assert_eq!(node.reclaim(&reclaim()).await.len(), 1);
        }
        "given up after too many crashes" => {
            let lost = node.sibling();
            let token = lost.take_job(job).await;
            lost.alive(token).await;
            cx.advance(HOUR).await;
            let lost = node.reclaim(&reclaim().max_crashes(0)).await;
            assert!(lost[0].exhausted);
            node.fail(lost[0].token).await;
        }
        other => panic!("unknown way to end a job: {other}"),
    }
}

const WAYS: [(&str, JobState); 7] = [
    ("success", Succeeded),
    ("failure", Failed),
    ("cancelled by its body", Cancelled),
    ("cancelled while it waits", Cancelled),
    ("cancelled while it runs", Cancelled),
    ("reclaimed with a cancellation", Cancelled),
    ("given up after too many crashes", Failed),
];

cases! {
    "link" on Cx;

    #[proves("link.wait", "link.decide", "link.release", "link.cancel")]
    #[needs(Clock, Workflows)]
    async fn every_end_of_a_parent_decides_every_condition(cx: &Cx) {
        let node = cx.node().await;
        for (way, state) in WAYS {
            let parent = node.add(job()).await;
            let conditions = [Condition::Succeeded, Condition::Failed, Condition::Ended];
            let mut children = Vec::new();
            for condition in &conditions {
                children.push(node.add(job().after(parent, condition.clone())).await);
            }
            cx.proving(["link.wait"]);
            for child in &children {
                assert_eq!(node.state(*child).await, Blocked, "{way}");
                assert_eq!(node.links(*child).await, [Open], "{way}");
            }
            cx.proving(["link.decide"]);
            end(&node, cx, parent, way).await;
            assert_eq!(node.state(parent).await, state, "{way}");
            for (child, condition) in children.into_iter().zip(conditions) {
                let met = condition.met_by(state, None);
                let expected = if met { (Pending, Met) } else { (Cancelled, Unmet) };
                cx.proving(["link.decide", "link.release", "link.cancel"]);
                let decided = (node.state(child).await, node.links(child).await[0]);
                assert_eq!(decided, expected, "{way}, {condition:?}");
                if met {
                    end(&node, cx, child, "success").await;
                } else {
                    let ended = node.get(child).await.finished_at;
                    assert_eq!(ended, node.get(parent).await.finished_at, "{way}");
                }
            }
        }
    }

    #[proves("link.wait", "link.release")]
    #[needs(Clock, Workflows)]
    async fn a_released_job_is_due_when_it_was_or_now(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let early = node.add(child(parent).priority(Priority::High)).await;
        let late = node.add(child(parent).delay(HOUR)).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.claim_ids(10).await, [parent]);
        let token = node.token(parent, 1).await;
        // Only the end of a job decides its links: a retry or a release does not.
        node.settle(token, retry(Duration::ZERO)).await;
        assert_eq!(node.states([early, late]).await, [Blocked, Blocked]);
        let token = node.take().await;
        assert_eq!(token.job, parent);
        node.succeed(token).await;
        let [early_job, late_job] = [node.get(early).await, node.get(late).await];
        assert_eq!([early_job.state, late_job.state], [Pending, Pending]);
        assert_eq!(early_job.run_at, node.now().await);
        assert_eq!(late_job.run_at, time::add(late_job.created_at, HOUR));
        assert_eq!(node.claim_ids(10).await, [early]);
    }

    #[proves("link.release", "link.decide", "get.whole", "link.parents")]
    #[needs(Workflows)]
    async fn a_job_waits_for_all_its_parents(cx: &Cx) {
        let node = cx.node().await;
        let [a, b, c] = [node.add(job()).await, node.add(job()).await, node.add(job()).await];
        let child = job()
            .after(b, Condition::Ended)
            .after(a, Condition::Succeeded)
            .after(c, Condition::Failed);
        let spec = child.spec().clone();
        let child = node.add(child).await;
        cx.proving(["get.whole"]);
        let record = node.get(child).await;
        assert_eq!((record.state, &record.spec), (Blocked, &spec));
        cx.proving(["link.decide"]);
        node.end(a, succeeded()).await;
        assert_eq!(node.links(child).await, [Open, Met, Open]);
        node.end(c, failed()).await;
        assert_eq!(node.links(child).await, [Open, Met, Met]);
        cx.proving(["link.release"]);
        assert_eq!(node.state(child).await, Blocked);
        node.act(b, JobAction::Cancel).await;
        assert_eq!(node.state(child).await, Pending);
        cx.proving(["link.parents"]);
        let links = node.parents_of(child).await;
        let after: Vec<&After> = links.iter().map(|link| &link.after).collect();
        assert_eq!(after, spec.after.iter().collect::<Vec<_>>());
        assert!(links.iter().all(|link| link.child == child && link.state == Met));
        assert_eq!(node.parents_of(a).await, []);
    }

    #[proves("link.decide")]
    #[needs(Workflows)]
    async fn results_decide_which_branch_goes_on(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let branch = |size: &str| job().after(parent, Condition::result_is("/size", size));
        let (small, large) = (node.add(branch("small")).await, node.add(branch("large")).await);
        node.end(parent, result(r#"{"size": "large", "name": "é"}"#)).await;
        assert_eq!(node.states([small, large]).await, [Cancelled, Pending]);
        assert_eq!(node.get(large).await.spec.after, branch("large").spec().after);
        // If there is no result, or a cancellation drops it, the condition is not met.
        for cancelled in [false, true] {
            let parent = node.add(job()).await;
            let child = node.add(job().after(parent, Condition::result_is("", &1))).await;
            let token = node.take_job(parent).await;
            let end = if cancelled {
                node.act(parent, JobAction::Cancel).await;
                result("1")
            } else {
                succeeded()
            };
            node.settle(token, end).await;
            assert_eq!(node.state(child).await, Cancelled);
        }
    }

    #[proves("link.cancel", "link.decide", "settle.keys")]
    #[needs(Workflows)]
    async fn a_failure_cancels_a_subtree_and_releases_what_waits_for_ends(cx: &Cx) {
        let node = cx.node().await;
        let root = node.add(job()).await;
        let first = node.add(child(root).unique_key("u")).await;
        let second = node.add(child(first)).await;
        let other = node.add(child(first)).await;
        let both = node.add(child(second).after(other, Condition::Ended)).await;
        let cleanup = node.add(follower(second)).await;
        let never = node.add(job().after(first, Condition::Failed)).await;
        node.end(root, failed()).await;
        let subtree = [first, second, other, both, never];
        assert_eq!(node.states(subtree).await, [Cancelled; 5]);
        assert_eq!(node.claim_ids(10).await, [cleanup]);
        assert_eq!(node.links(both).await, [Unmet, Met]);
        // The unique key of the cancelled job is free again.
        node.add(job().unique_key("u")).await;
        for id in subtree {
            assert_eq!(node.history(id).await, []);
            assert_eq!(node.get(id).await.claim_seq, 0);
        }
    }

    #[proves("link.cancel", "act.respond")]
    #[needs(Workflows)]
    async fn cancelling_a_whole_subtree_answers_for_each_that_was_named(cx: &Cx) {
        let node = cx.node().await;
        let root = node.add(job()).await;
        let first = node.add(follower(root)).await;
        let second = node.add(follower(first)).await;
        let unnamed = node.add(child(second)).await;
        let freed = node.add(follower(second)).await;
        // The call ends all named jobs before it decides links, so it releases none of them.
        let named = JobSelector::Ids(vec![root, second, first, root]);
        let acted = node.act_on(&named, JobAction::Cancel).await;
        let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
        let became = ActionOutcome::Became(Cancelled);
        let refused = ActionOutcome::Refused(Cancelled);
        assert_eq!(outcomes, [became, became, became, refused]);
        let all = [root, first, second, unnamed, freed];
        let expected = [Cancelled, Cancelled, Cancelled, Cancelled, Pending];
        assert_eq!(node.states(all).await, expected);
        // An action with a filter also ends all matching jobs before it decides links.
        let (a, b) = (node.add(job().queue("x")).await, job().queue("x"));
        let b = node.add(b.after(a, Condition::Ended)).await;
        let filter = JobFilter::all().queue(name("x"));
        let selector = JobSelector::matching(filter, 10);
        assert_eq!(node.act_on(&selector, JobAction::Cancel).await.len(), 2);
        assert_eq!(node.states([a, b]).await, [Cancelled, Cancelled]);
    }

    #[proves("link.enqueue", "link.cancel", "link.release")]
    #[needs(Clock, Workflows)]
    async fn a_link_on_an_ended_parent_is_decided_at_the_enqueue(cx: &Cx) {
        let node = cx.node().await;
        let (good, bad) = (node.add(job()).await, node.add(job()).await);
        node.end(good, result(r#"[7]"#)).await;
        node.end(bad, failed()).await;
        cx.advance(MINUTE).await;
        let met = child(good).after(bad, Condition::Failed);
        let met = met.after(good, Condition::result_is("/0", &7));
        let delayed = child(good).delay(HOUR);
        let unmet = child(bad).unique_key("u");
        let behind = child(unmet.id());
        let after_it = follower(unmet.id()).after(good, Condition::Ended);
        let half = child(good).after(delayed.id(), Condition::Succeeded);
        let batch = [met, delayed, unmet, behind, after_it, half];
        let all: [JobId; 6] = node.add_all(&batch).await.try_into().expect("six jobs");
        let expected = [Pending, Pending, Cancelled, Cancelled, Pending, Blocked];
        assert_eq!(node.states(all).await, expected);
        let now = node.now().await;
        assert_eq!(node.get(all[0]).await.run_at, now);
        assert_eq!(node.get(all[2]).await.finished_at, Some(now));
        assert_eq!(node.links(all[5]).await, [Met, Open]);
        // A cancelled job holds no key, and the parents are unchanged.
        node.add(job().unique_key("u")).await;
        assert_eq!(node.states([good, bad]).await, [Succeeded, Failed]);
    }

    #[proves("link.missing", "enqueue.atomic", "errors.kind")]
    #[needs(Workflows, IdempotencyKeys)]
    async fn a_missing_parent_keeps_the_whole_enqueue_out(cx: &Cx) {
        let node = cx.node().await;
        let stored = node.add(job()).await;
        let unknown = BatchId::new();
        let cases = [
            (child(stored).after(JobId::new(), Condition::Ended), "parent"),
            (child(stored).after_batch(unknown, BatchCondition::Ended), "batch"),
        ];
        for (bad, field) in cases {
            let keyed = job().unique_key(field).idempotency_key(field);
            let batch = [keyed.clone(), child(stored), bad.in_batch(node.batch().await)];
            assert_refused(node.jobs().enqueue(&batch).await, field);
            assert_eq!(node.parents_of(batch[1].id()).await, []);
            let joined = batch[2].spec().batch.expect("it has one");
            assert_eq!(node.counts(joined).await, [0; 4]);
            // The refused call has not taken the keys of its first job.
            node.add(keyed.another()).await;
        }
        assert_eq!(node.everything().await.len(), 3);
    }

    #[proves("link.cycle", "link.duplicate", "enqueue.atomic")]
    #[needs(Workflows)]
    async fn jobs_that_would_wait_for_themselves_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let [a, b] = [job(), job()];
        let (first, second) = (a.id(), b.id());
        let circle = [a.after(second, Condition::Ended), b.after(first, Condition::Ended)];
        assert_refused(node.jobs().enqueue(&circle).await, "parent");
        // A duplicate can also close a cycle: the parent of `own` is a duplicate of `own` itself.
        let own = job().unique_key("u");
        let twin = job().unique_key("u");
        let own = own.after(twin.id(), Condition::Ended);
        assert_refused(node.jobs().enqueue(&[own, twin]).await, "parent");
        let own = job().unique_key("u");
        let child = follower(own.id());
        let twin = job().unique_key("u").after(child.id(), Condition::Ended);
        // The twin is a duplicate and is not stored. So its link closes no cycle.
        let answers = node.enqueue(&[own.clone(), child.clone(), twin]).await;
        assert_eq!(answers[2], Enqueued::Duplicate(own.id()));
        assert_eq!(node.states([own.id(), child.id()]).await, [Pending, Blocked]);
        assert_eq!(node.everything().await.len(), 2);
    }

    #[proves("link.duplicate", "enqueue.repeat", "keys.idempotency", "keys.unique")]
    #[needs(Workflows, IdempotencyKeys)]
    async fn a_child_of_a_duplicate_waits_for_who_stands_for_it(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(job().unique_key("u")).await;
        let ended = node.add(job().idempotency_key("i")).await;
        node.end(ended, failed()).await;
        let (twin, again) = (job().unique_key("u"), job().idempotency_key("i"));
        let waits = follower(twin.id()).after(again.id(), Condition::Failed);
        // A duplicate's own links are not stored.
        let idle = child(twin.id()).idempotency_key("i");
        let batch = [waits.clone(), twin, again, idle.clone()];
        cx.proving(["keys.idempotency", "keys.unique"]);
        let answers = node.enqueue(&batch).await;
        let expected = [
            Enqueued::Created(waits.id()),
            Enqueued::Duplicate(first),
            Enqueued::Duplicate(ended),
            Enqueued::Duplicate(ended),
        ];
        assert_eq!(answers, expected);
        cx.proving(["link.duplicate"]);
        assert_eq!(node.links(waits.id()).await, [Open, Met]);
        assert_eq!(node.parents_of(idle.id()).await, []);
        let after = [
            After::Job { parent: first, condition: Condition::Ended },
            After::Job { parent: ended, condition: Condition::Failed },
        ];
        assert_eq!(node.get(waits.id()).await.spec.after, after);
        cx.proving(["enqueue.repeat"]);
        // A repeated enqueue stores nothing more and decides no link again.
        assert_eq!(node.enqueue(&batch).await, expected);
        assert_eq!(node.links(waits.id()).await, [Open, Met]);
        cx.proving(["link.duplicate"]);
        node.act(first, JobAction::Cancel).await;
        assert_eq!(node.state(waits.id()).await, Pending);
        cx.proving(["enqueue.repeat"]);
        assert_eq!(node.offer(&waits).await, Enqueued::Created(waits.id()));
        assert_eq!(node.links(waits.id()).await, [Met, Met]);
    }

    #[proves("link.duplicate", "link.missing", "purge.keys")]
    #[needs(Workflows, IdempotencyKeys)]
    async fn a_child_of_a_duplicate_whose_job_was_purged_is_refused_and_told_so(cx: &Cx) {
        let node = cx.node().await;
        let earlier = node.add(job().idempotency_key("i")).await;
        node.end(earlier, succeeded()).await;
        node.act(earlier, JobAction::Delete).await;
        let step = job().idempotency_key("i");
        let waits = follower(step.id());
        let refused = node.jobs().enqueue(&[step.clone(), waits]).await;
        let text = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(text.contains(&earlier.to_string()) && text.contains("was purged"), "{text}");
        assert_refused(refused, "parent");
        assert_eq!(node.everything().await.len(), 0);
        // Without the child in the same call, the step is a duplicate again.
        assert_eq!(node.offer(&step).await, Enqueued::Duplicate(earlier));
    }

    #[proves("link.once", "requeue.fresh")]
    #[needs(Workflows)]
    async fn a_requeued_parent_decides_nothing_again(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let (good, bad) = (node.add(child(parent)).await, node.add(follower(parent)).await);
        node.end(parent, failed()).await;
        assert_eq!(node.states([good, bad]).await, [Cancelled, Pending]);
        let token = node.take_job(bad).await;
        node.act(parent, JobAction::Requeue).await;
        // A job linked after the requeue waits for the new end.
        let later = node.add(child(parent)).await;
        node.end(parent, succeeded()).await;
        assert_eq!(node.states([good, bad, later]).await, [Cancelled, Running, Pending]);
        assert_eq!([node.links(good).await, node.links(bad).await], [[Unmet], [Met]]);
        node.succeed(token).await;
    }

    #[proves("link.requeue", "requeue.fresh")]
    #[needs(Clock, Workflows, Signals)]
    async fn a_requeued_job_waits_for_what_it_still_lacks(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let waiting = node.add(follower(parent).wait_for("s", MINUTE)).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.expire().await, [waiting]);
        let became = ActionOutcome::Became(Blocked);
        assert_eq!(node.act(waiting, JobAction::Requeue).await, became);
        // The timeout of the signal starts again.
        cx.advance(MINUTE - MILLI).await;
        assert_eq!(node.expire().await, []);
        assert_eq!(node.signal("s", "1").await, Delivered::To(vec![waiting]));
        assert_eq!(node.state(waiting).await, Blocked);
        node.end(parent, succeeded()).await;
        assert_eq!(node.state(waiting).await, Pending);
        // A job whose links and signal are all met is pending at once, and keeps its signal.
        node.end(waiting, failed()).await;
        let became = ActionOutcome::Became(Pending);
        assert_eq!(node.act(waiting, JobAction::Requeue).await, became);
        let signal = node.get(waiting).await.signal.expect("the job should have a signal");
        assert_eq!(signal.delivered.expect("the signal should be delivered").payload, json("1"));
        // A link that is already unmet does not block a requeued job.
        let parent = node.add(job()).await;
        let late = node.add(child(parent).wait_for("t", MINUTE)).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.expire().await, [late]);
        node.end(parent, failed()).await;
        assert_eq!((node.state(late).await, node.links(late).await), (Failed, vec![Unmet]));
        node.act(late, JobAction::Requeue).await;
        assert_eq!(node.signal("t", "1").await, Delivered::To(vec![late]));
        assert_eq!(node.state(late).await, Pending);
    }

    #[proves("link.kept", "link.parents", "link.children", "purge.old")]
    #[needs(Clock, Workflows)]
    async fn links_outlive_their_parents_and_go_with_their_children(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let other = node.add(job()).await;
        let mut children = Vec::new();
        for _ in 0..3 {
            let twice = child(parent).after(other, Condition::Ended);
            children.push(node.add(twice.after(parent, Condition::Ended)).await);
        }
        node.end(parent, succeeded()).await;
        cx.proving(["link.children"]);
        let on = Parent::Job(parent);
        let read = async |limit, after| ok(node.workflows().children_of(on, limit, after).await);
        let whose = |links: &[Link]| links.iter().map(|link| link.child).collect::<Vec<_>>();
        let all = read(10, None).await;
        let pairs: Vec<JobId> = children.iter().flat_map(|id| [*id, *id]).collect();
        assert_eq!(whose(&all), pairs);
        assert!(all.iter().all(|link| link.state == Met && link.after.parent() == on));
        assert_eq!(whose(&read(3, None).await), pairs[..3]);
        assert_eq!(whose(&read(10, Some(children[0])).await), pairs[2..]);
        assert_refused(node.workflows().children_of(on, 0, None).await, "limit");
        cx.proving(["link.kept", "link.parents"]);
        assert_eq!(node.act(parent, JobAction::Delete).await, ActionOutcome::Deleted);
        assert_eq!(node.find(parent).await, None);
        assert_eq!(node.links(children[0]).await, [Met, Open, Met]);
        assert_eq!(whose(&read(10, None).await), pairs);
        // A purged child has no links, and its absence does not affect later calls.
        node.act(children[0], JobAction::Cancel).await;
        cx.advance(HOUR).await;
        assert_eq!(node.purge(Cancelled, MINUTE, 10).await, 1);
        cx.proving(["link.kept", "link.parents", "link.children"]);
        assert_eq!(node.parents_of(children[0]).await, []);
        assert_eq!(whose(&read(10, None).await), pairs[2..]);
        node.end(other, succeeded()).await;
        assert_eq!(node.states([children[1], children[2]]).await, [Pending, Pending]);
    }

    #[proves("purge.awaited")]
    #[needs(Clock, Workflows)]
    async fn a_parent_is_purged_when_its_last_child_has_ended(cx: &Cx) {
        let node = cx.node().await;
        let (parent, plain) = (node.add(job()).await, node.add(job()).await);
        let [first, second] = [node.add(child(parent)).await, node.add(child(parent)).await];
        node.end(parent, succeeded()).await;
        node.end(plain, succeeded()).await;
        node.end(first, failed()).await;
        cx.advance(HOUR).await;
        // The parent is older and cannot be purged yet. The plain job is purged nevertheless.
        assert_eq!(node.purge(Succeeded, MINUTE, 1).await, 1);
        assert_eq!(node.find(plain).await, None);
        assert_eq!(node.purge(Succeeded, MINUTE, 10).await, 0);
        // The parent is not purged while its last child is unfinished.
        node.fail(node.take_job(second).await).await;
        node.act(second, JobAction::Requeue).await;
        assert_eq!(node.purge(Succeeded, MINUTE, 10).await, 0);
        let token = node.take_job(second).await;
        assert_eq!(node.purge(Succeeded, MINUTE, 10).await, 0);
        assert!(node.find(parent).await.is_some());
        node.succeed(token).await;
        assert_eq!(node.purge(Succeeded, MINUTE, 10).await, 1);
        assert_eq!(node.find(parent).await, None);
    }

    #[proves("link.decide", "settle.mixed", "settle.repeat", "settle.token")]
    #[needs(Workflows)]
    async fn one_call_ends_many_parents_and_a_stale_one_decides_nothing(cx: &Cx) {
        let node = cx.node().await;
        let parents = node.add_all(&jobs(4)).await;
        let mut both = job();
        for parent in &parents[..2] {
            both = both.after(*parent, Condition::Succeeded);
        }
        let both = node.add(both).await;
        let third = node.add(child(parents[2])).await;
        let fourth = node.add(child(parents[3])).await;
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), parents);
        let token = |place: usize| claimed[place].claim.token;
        let stale = node.token(parents[2], 7).await;
        let batch = [
            Settlement::new(stale, failed()),
            Settlement::new(token(1), succeeded()),
            Settlement::new(token(3), retry(HOUR)),
            Settlement::new(token(0), succeeded()),
            Settlement::new(token(0), failed()),
        ];
        cx.proving(["settle.mixed", "settle.token", "settle.repeat"]);
        let answers = node.settle_all(&batch).await;
        let (applied, stale) = (Fenced::Applied, Fenced::Stale);
        assert_eq!(answers, [stale, applied, applied, applied, applied]);
        cx.proving(["link.decide"]);
        assert_eq!(node.states([both, third, fourth]).await, [Pending, Blocked, Blocked]);
        node.succeed(token(2)).await;
        assert_eq!(node.state(third).await, Pending);
        cx.proving(["settle.repeat"]);
        let taken = node.take_job(third).await;
        assert_eq!(node.settle(token(2), failed()).await, applied);
        assert_eq!(node.state(third).await, Running);
        node.succeed(taken).await;
    }

    #[proves("link.decide", "link.cancel", "errors.poison", "claim.damaged")]
    #[needs(Vandal, Workflows)]
    async fn a_parent_that_cannot_be_read_fails_and_its_children_hear_of_it(cx: &Cx) {
        let node = cx.node().await;
        let parent = node.add(job()).await;
        let (good, bad) = (node.add(child(parent)).await, node.add(follower(parent)).await);
        if let Err(error) = cx.vandal().spoil(parent).await {
            panic!("the fixture could not damage the row: {error}");
        }
        let mut claimed = node.claim_ids(10).await;
        // A claim that finds the unreadable parent ends it, which releases the child. A store may
        // or may not return the child in the same claim.
        if claimed.is_empty() {
            claimed = node.claim_ids(10).await;
        }
        assert_eq!(claimed, [bad]);
        assert_eq!(node.states([parent, good, bad]).await, [Failed, Cancelled, Running]);
    }

    #[proves("claim.awaited", "claim.optimized")]
    #[needs(Workflows)]
    async fn a_claim_shows_whether_others_wait_for_its_end(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let parent = node.add(job()).await;
        let member = node.add(job().in_batch(batch)).await;
        let plain = node.add(job()).await;
        let inside = job();
        node.add_all(&[child(parent), child(inside.id()), inside.clone()]).await;
        let whole = node.claim(10).await;
        let shown = |job: JobId| {
            let claim = whole.iter().find(|one| one.claim.token.job == job);
            claim.map(|one| one.claim.awaited)
        };
        let awaited = [parent, member, inside.id()].map(shown);
        assert_eq!(awaited, [Some(true); 3]);
        assert!(cx.settings().may_exaggerate || shown(plain) == Some(false));
        for job in &whole {
            node.release(job.claim.token).await;
        }
        let lean = node.claim_lean(&node.request(10)).await;
        let awaited = |job: JobId| lean.iter().any(|one| one.token.job == job && one.awaited);
        assert!([parent, member, inside.id()].into_iter().all(awaited));
    }
}
