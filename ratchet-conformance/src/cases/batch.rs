//! Batches: jobs that are counted together, and the jobs that a batch's end releases.

use JobState::{Blocked, Cancelled, Failed, Pending, Succeeded};

use super::prelude::*;

fn failed() -> Outcome {
    let error = "it failed".to_owned();
    Outcome::Failed { error }
}

fn succeeded() -> Outcome {
    Outcome::Succeeded { result: None }
}

/// Creates `count` jobs that belong to a batch.
fn children(batch: BatchId, count: usize) -> Vec<NewJob> {
    jobs(count)
        .into_iter()
        .map(|job| job.in_batch(batch))
        .collect()
}

/// Creates a job that waits until the batch meets the condition.
fn callback(batch: BatchId, condition: BatchCondition) -> NewJob {
    job().after_batch(batch, condition)
}

cases! {
    "batch" on Cx;

    #[proves("batch.create", "batch.read", "batch.close", "batch.end", "batch.list")]
    #[needs(Clock, Workflows)]
    async fn a_batch_is_created_once_closed_once_and_read_by_all(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let created_at = nodes[0].now().await;
        let (batch, other) = (BatchId::new(), BatchId::new());
        cx.proving(["batch.create"]);
        for expected in [Changed::Changed, Changed::Unchanged] {
            assert_eq!(ok(nodes[0].workflows().create_batch(batch).await), expected);
            cx.advance(SECOND).await;
        }
        let fresh = BatchRecord::new(batch, created_at);
        cx.proving(["batch.create", "batch.read"]);
        assert_eq!(nodes[1].read_batch(batch).await, fresh);
        let read = ok(nodes[1].workflows().batches(&[other, batch, batch]).await);
        assert_eq!(read, [None, Some(fresh.clone()), Some(fresh)]);
        cx.proving(["batch.close"]);
        let close = async |batch| ok(nodes[1].workflows().close_batch(batch).await);
        assert_eq!(close(other).await, BatchClosed::NotFound);
        assert_eq!(close(batch).await, BatchClosed::Closed);
        cx.proving(["batch.end"]);
        let closed = nodes[0].read_batch(batch).await;
        // A batch without children ends when it is closed.
        assert_eq!((closed.closed, closed.ended_at), (true, Some(nodes[0].now().await)));
        cx.advance(SECOND).await;
        cx.proving(["batch.close"]);
        assert_eq!(close(batch).await, BatchClosed::Already);
        cx.proving(["batch.create"]);
        assert_eq!(ok(nodes[0].workflows().create_batch(batch).await), Changed::Unchanged);
        assert_eq!(nodes[0].read_batch(batch).await, closed);
        cx.proving(["batch.list"]);
        let mut all = vec![batch];
        for _ in 0..3 {
            all.push(nodes[0].batch().await);
        }
        all.reverse();
        let list = async |limit, before| {
            let batches = ok(nodes[1].workflows().recent_batches(limit, before).await);
            batches.iter().map(|batch| batch.id).collect::<Vec<_>>()
        };
        assert_eq!(list(10, None).await, all);
        assert_eq!(list(2, None).await, all[..2]);
        assert_eq!(list(2, Some(all[1])).await, all[2..]);
        assert_refused(nodes[0].workflows().recent_batches(0, None).await, "limit");
    }

    #[proves("batch.join", "batch.count", "batch.end", "get.whole")]
    #[needs(Clock, Workflows)]
    async fn children_join_in_chunks_and_are_counted_by_the_write_that_ends_them(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        cx.proving(["batch.join"]);
        let first = node.add_all(&children(batch, 3)).await;
        cx.proving(["batch.count"]);
        let token = node.take_job(first[0]).await;
        node.succeed(token).await;
        assert_eq!(node.counts(batch).await, [3, 1, 0, 0]);
        cx.proving(["batch.join"]);
        let second = node.add_all(&children(batch, 2)).await;
        assert_eq!(node.counts(batch).await, [5, 1, 0, 0]);
        cx.proving(["get.whole"]);
        assert_eq!(node.get(second[0]).await.spec.batch, Some(batch));
        cx.proving(["batch.count"]);
        node.close(batch).await;
        node.end(first[1], failed()).await;
        node.end(first[2], Outcome::Cancelled).await;
        node.act(second[0], JobAction::Cancel).await;
        assert_eq!(node.counts(batch).await, [5, 1, 1, 2]);
        cx.proving(["batch.end"]);
        assert_eq!(node.read_batch(batch).await.ended_at, None);
        cx.proving(["batch.count"]);
        let token = node.take_job(second[1]).await;
        node.settle(token, retry(Duration::ZERO)).await;
        assert_eq!(node.counts(batch).await, [5, 1, 1, 2]);
        cx.advance(MINUTE).await;
        node.end(second[1], succeeded()).await;
        assert_eq!(node.counts(batch).await, [5, 2, 1, 2]);
        cx.proving(["batch.end"]);
        assert_eq!(node.read_batch(batch).await.ended_at, Some(node.now().await));
        cx.proving(["batch.count"]);
        // A repeated settlement is not counted.
        node.settle(token, failed()).await;
        assert_eq!(node.counts(batch).await, [5, 2, 1, 2]);
    }

    #[proves("batch.join", "enqueue.atomic", "enqueue.repeat", "keys.unique")]
    #[needs(Workflows)]
    async fn only_what_is_stored_joins_and_only_an_open_batch(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let held = node.add(job().unique_key("u")).await;
        let jobs = children(batch, 2);
        let twin = job().unique_key("u").in_batch(batch);
        let all = [jobs[0].clone(), twin, jobs[1].clone()];
        for _ in 0..2 {
            cx.proving(["keys.unique", "enqueue.repeat"]);
            let answers = node.enqueue(&all).await;
            assert_eq!(answers[1], Enqueued::Duplicate(held));
            cx.proving(["batch.join"]);
            assert_eq!(node.counts(batch).await, [2, 0, 0, 0]);
        }
        node.close(batch).await;
        for refused in [batch, BatchId::new()] {
            cx.proving(["enqueue.atomic", "batch.join"]);
            let late = [job().unique_key("v"), job().in_batch(refused)];
            assert_refused(node.jobs().enqueue(&late).await, "batch");
            assert_eq!(node.everything().await.len(), 3);
        }
        cx.proving(["enqueue.atomic"]);
        node.add(job().unique_key("v")).await;
        cx.proving(["enqueue.repeat"]);
        // A repeated enqueue of jobs that are already in the closed batch succeeds.
        assert_eq!(node.enqueue(&jobs).await.len(), 2);
        assert_eq!(node.counts(batch).await, [2, 0, 0, 0]);
    }

    #[proves("batch.count", "link.once", "requeue.fresh")]
    #[needs(Workflows)]
    async fn a_requeued_child_is_not_counted_again(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let all = node.add_all(&children(batch, 2)).await;
        let done = node.add(callback(batch, BatchCondition::Ended)).await;
        node.close(batch).await;
        node.end(all[0], failed()).await;
        node.act(all[0], JobAction::Requeue).await;
        cx.proving(["batch.count"]);
        assert_eq!(node.counts(batch).await, [2, 0, 1, 0]);
        node.end(all[0], succeeded()).await;
        assert_eq!(node.counts(batch).await, [2, 0, 1, 0]);
        cx.proving(["batch.count", "requeue.fresh"]);
        assert_eq!(node.state(done).await, Blocked);
        node.end(all[1], failed()).await;
        assert_eq!(node.state(done).await, Pending);
        cx.proving(["link.once", "batch.count"]);
        let ended = node.read_batch(batch).await;
        for id in &all[1..] {
            node.act(*id, JobAction::Requeue).await;
            node.end(*id, failed()).await;
        }
        assert_eq!(node.read_batch(batch).await, ended);
        assert_eq!(node.claim_ids(10).await, [done]);
    }

    #[proves("batch.callback", "link.release", "link.cancel")]
    #[needs(Workflows)]
    async fn callbacks_are_decided_as_soon_as_they_can_be(cx: &Cx) {
        let node = cx.node().await;
        let conditions = [
            BatchCondition::Ended,
            BatchCondition::Succeeded,
            BatchCondition::Failed,
            BatchCondition::FailuresReach(2),
            BatchCondition::SucceededAtLeast { percent: 50 },
        ];
        let (wait, go, no) = (Blocked, Pending, Cancelled);
        // Each row contains whether each of the four children succeeds, and the states of the
        // callbacks after the end of each child.
        let table = [
            ([true, true, true, true], [
                [wait; 5],
                [wait; 5],
                [wait; 5],
                [go, go, no, no, go],
            ]),
            ([true, false, true, true], [
                [wait; 5],
                [wait, no, wait, wait, wait],
                [wait, no, wait, wait, wait],
                [go, no, go, no, go],
            ]),
            ([false, false, false, true], [
                [wait, no, wait, wait, wait],
                [wait, no, wait, go, wait],
                [wait, no, wait, go, no],
                [go, no, go, go, no],
            ]),
        ];
        for (ends, expected) in table {
            let batch = node.batch().await;
            let members = node.add_all(&children(batch, 4)).await;
            let mut callbacks = Vec::new();
            for condition in conditions {
                callbacks.push(node.add(callback(batch, condition)).await);
            }
            let callbacks: [JobId; 5] = callbacks.try_into().expect("five");
            node.close(batch).await;
            for ((member, good), expected) in members.into_iter().zip(ends).zip(expected) {
                let token = node.take_job(member).await;
                let outcome = if good { succeeded() } else { failed() };
                node.settle(token, outcome).await;
                assert_eq!(node.states(callbacks).await, expected, "{ends:?}");
            }
            // Callbacks that are stored after the batch has ended get the same states.
            for (condition, earlier) in conditions.into_iter().zip(callbacks) {
                let late = node.add(callback(batch, condition)).await;
                let states = node.states([late, earlier]).await;
                assert_eq!(states[0], states[1], "{condition:?}");
            }
            for job in node.claim(20).await {
                node.succeed(job.claim.token).await;
            }
        }
    }

    #[proves("batch.callback", "batch.close", "batch.end")]
    #[needs(Workflows)]
    async fn an_open_batch_has_not_ended_and_its_close_decides(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let early = node.add(callback(batch, BatchCondition::Ended)).await;
        let (good, bad) = (BatchCondition::Succeeded, BatchCondition::Failed);
        let good = node.add(callback(batch, good)).await;
        let bad = node.add(callback(batch, bad).unique_key("u")).await;
        let member = node.add(job().in_batch(batch)).await;
        node.end(member, succeeded()).await;
        cx.proving(["batch.callback"]);
        assert_eq!(node.states([early, good, bad]).await, [Blocked; 3]);
        cx.proving(["batch.end"]);
        assert_eq!(node.read_batch(batch).await.ended_at, None);
        node.close(batch).await;
        cx.proving(["batch.callback", "batch.close"]);
        assert_eq!(node.states([early, good, bad]).await, [Pending, Pending, Cancelled]);
        cx.proving(["batch.end"]);
        assert!(node.read_batch(batch).await.ended_at.is_some());
        cx.proving(["batch.callback"]);
        node.add(job().unique_key("u")).await;
    }

    #[proves("batch.count", "batch.callback", "link.cancel", "link.enqueue")]
    #[needs(Workflows)]
    async fn children_that_are_cancelled_by_links_count_too(cx: &Cx) {
        let node = cx.node().await;
        let (inner, outer) = (node.batch().await, node.batch().await);
        let root = node.add(job().in_batch(inner)).await;
        let child = job().after(root, Condition::Succeeded).in_batch(inner);
        let child = node.add(child).await;
        // The inner batch's callback is a child of the outer batch.
        let good = callback(inner, BatchCondition::Succeeded).in_batch(outer);
        let good = node.add(good).await;
        let last = node.add(callback(outer, BatchCondition::Failed)).await;
        node.close(inner).await;
        node.close(outer).await;
        cx.proving(["batch.callback", "link.cancel"]);
        node.end(root, failed()).await;
        assert_eq!(node.states([child, good, last]).await, [Cancelled, Cancelled, Pending]);
        cx.proving(["batch.count"]);
        assert_eq!(node.counts(inner).await, [2, 0, 1, 1]);
        assert_eq!(node.counts(outer).await, [1, 0, 0, 1]);
        cx.proving(["link.enqueue"]);
        // The condition of this job can no longer be met, so the job is cancelled when it is
        // stored. Its batch counts it at once.
        let batch = node.batch().await;
        let late = job().after(root, Condition::Succeeded).in_batch(batch);
        let late = node.add(late).await;
        assert_eq!(node.state(late).await, Cancelled);
        cx.proving(["batch.count"]);
        assert_eq!(node.counts(batch).await, [1, 0, 0, 1]);
    }

    #[proves("batch.filter", "page.filter", "page.walk", "act.select")]
    #[needs(Workflows)]
    async fn a_filter_by_batch_finds_its_children_and_cancels_them(cx: &Cx) {
        let node = cx.node().await;
        let (batch, other) = (node.batch().await, node.batch().await);
        let mut mine = Vec::new();
        for number in 0..7 {
            node.add(job()).await;
            node.add(job().in_batch(other)).await;
            let queue = if number % 2 == 0 { "x" } else { "y" };
            mine.push(node.add(job().in_batch(batch).queue(queue)).await);
        }
        let walk = async |filter: JobFilter, order| node.walk(&filter, order, 2).await;
        cx.proving(["batch.filter", "page.walk"]);
        let all = JobFilter::all().batch(batch);
        assert_eq!(walk(all.clone(), JobOrder::OldestFirst).await, mine);
        let newest: Vec<JobId> = mine.iter().rev().copied().collect();
        assert_eq!(walk(all.clone(), JobOrder::NewestFirst).await, newest);
        cx.proving(["batch.filter", "page.filter"]);
        let in_x: Vec<JobId> = mine.iter().step_by(2).copied().collect();
        let x = all.clone().queue(name("x"));
        assert_eq!(walk(x.clone(), JobOrder::OldestFirst).await, in_x);
        cx.proving(["act.select", "batch.filter"]);
        let token = node.take_job(mine[2]).await;
        let selector = JobSelector::matching(x, 3);
        let acted = node.act_on(&selector, JobAction::Cancel).await;
        let whom: Vec<JobId> = acted.iter().map(|one| one.job).collect();
        assert_eq!(whom, in_x[..3]);
        assert_eq!(acted[1].outcome, ActionOutcome::CancelRequested);
        node.succeed(token).await;
        assert_eq!(node.counts(batch).await, [7, 0, 0, 3]);
        cx.proving(["batch.filter", "page.filter"]);
        let cancelled = all.state(Cancelled);
        assert_eq!(walk(cancelled, JobOrder::OldestFirst).await, in_x[..3]);
        cx.proving(["batch.filter"]);
        assert_eq!(node.counts(other).await, [7, 0, 0, 0]);
    }

    #[proves("batch.filter", "page.filter", "page.walk", "count.filter")]
    #[needs(Workflows, Tags)]
    async fn a_filter_by_batch_and_tag_finds_what_has_both(cx: &Cx) {
        let node = cx.node().await;
        let (batch, other) = (node.batch().await, node.batch().await);
        let mut both = Vec::new();
        for number in 0..5 {
            let queue = if number % 2 == 0 { "x" } else { "y" };
            let tagged = || job().queue(queue).tag("t");
            both.push(node.add(tagged().in_batch(batch)).await);
            let others = [
                tagged().in_batch(other),
                job().queue(queue).in_batch(batch),
                job().queue(queue).tag("T").in_batch(batch),
                tagged(),
            ];
            node.add_all(&others).await;
        }
        node.act(both[2], JobAction::Cancel).await;
        let all = JobFilter::all().batch(batch).tag(name("t"));
        let in_x = [both[0], both[2], both[4]];
        let filters = [
            (all.clone(), both.clone()),
            (all.clone().queue(name("x")), in_x.to_vec()),
            (all.clone().state(Cancelled), vec![both[2]]),
            (all.clone().state(Failed), vec![]),
        ];
        for (filter, mut expected) in filters {
            let counts = ok(node.jobs().count_jobs(&filter).await);
            assert_eq!(counts.values().sum::<u64>(), expected.len() as u64, "{filter:?}");
            for order in [JobOrder::OldestFirst, JobOrder::NewestFirst] {
                assert_eq!(node.walk(&filter, order, 2).await, expected, "{order:?} {filter:?}");
                expected.reverse();
            }
        }
    }

    #[proves("batch.purge")]
    #[needs(Clock, Workflows)]
    async fn as_many_batches_are_purged_as_asked_while_there_are_so_many(cx: &Cx) {
        let node = cx.node().await;
        let mut all = Vec::new();
        for _ in 0..5 {
            let batch = node.batch().await;
            node.close(batch).await;
            all.push(batch);
            cx.advance(SECOND).await;
        }
        cx.advance(HOUR).await;
        for (limit, purged, left) in [(2, 2, 3), (3, 3, 0), (3, 0, 0)] {
            let request = BatchPurge::new(MINUTE, limit);
            let done = ok(node.workflows().purge_batches(&request).await);
            assert_eq!(done, Guarded::Done(purged));
            let found = ok(node.workflows().recent_batches(10, None).await);
            let mut found: Vec<BatchId> = found.iter().map(|batch| batch.id).collect();
            found.reverse();
            assert_eq!(found, all[5 - left..]);
        }
    }

    #[proves("batch.purge", "guard.write")]
    #[needs(Clock, Workflows, Guards)]
    async fn old_batches_are_purged_and_leave_their_children(cx: &Cx) {
        let node = cx.node().await;
        let mut all = Vec::new();
        for (closes, later) in [(true, MILLI), (true, MINUTE), (false, MINUTE)] {
            let batch = node.batch().await;
            let child = node.add(job().in_batch(batch)).await;
            node.end(child, failed()).await;
            if closes {
                node.close(batch).await;
            }
            all.push((batch, child));
            cx.advance(later).await;
        }
        let done = node.add(callback(all[0].0, BatchCondition::Ended)).await;
        let purge = async |request: &BatchPurge| ok(node.workflows().purge_batches(request).await);
        let old = BatchPurge::new(2 * MINUTE + MILLI, 10);
        assert_eq!(purge(&old).await, Guarded::Done(0));
        cx.advance(MILLI).await;
        let guard = Guard {
            lock: name("leader/maintenance"),
            owner: name("nobody"),
            fence: Fence(1),
        };
        assert_eq!(purge(&old.clone().guarded(Some(guard))).await, Guarded::Stale);
        // The second batch is exactly as old as the limit, so it is not purged.
        assert_eq!(purge(&old).await, Guarded::Done(1));
        let left = ok(node.workflows().recent_batches(10, None).await);
        let left: Vec<BatchId> = left.iter().map(|batch| batch.id).collect();
        assert_eq!(left, [all[2].0, all[1].0]);
        // The children of the purged batch still refer to it, and end as usual.
        let child = all[0].1;
        assert_eq!(node.get(child).await.spec.batch, Some(all[0].0));
        node.act(child, JobAction::Requeue).await;
        node.end(child, succeeded()).await;
        assert_eq!(node.state(done).await, Pending);
        cx.advance(DAY).await;
        assert_eq!(purge(&BatchPurge::new(HOUR, 1)).await, Guarded::Done(1));
        // An open batch is not purged.
        assert_eq!(purge(&BatchPurge::new(Duration::ZERO, 10)).await, Guarded::Done(0));
        assert_refused(node.workflows().purge_batches(&BatchPurge::new(HOUR, 0)).await, "limit");
        let late = callback(all[0].0, BatchCondition::Ended);
        assert_refused(node.jobs().enqueue(&[late]).await, "batch");
    }

    #[proves("batch.count", "lane.promote")]
    #[needs(Workflows, Lanes)]
    async fn a_child_in_a_lane_moves_its_lane_on_and_is_counted(cx: &Cx) {
        let node = cx.node().await;
        let batch = node.batch().await;
        let lane: Vec<NewJob> = children(batch, 3).into_iter().map(|job| job.lane("l")).collect();
        let all: [JobId; 3] = node.add_all(&lane).await.try_into().expect("three");
        let done = node.add(callback(batch, BatchCondition::Ended)).await;
        node.close(batch).await;
        node.end(all[0], succeeded()).await;
        assert_eq!(node.states(all).await, [Succeeded, Pending, Blocked]);
        node.act(all[2], JobAction::Cancel).await;
        assert_eq!(node.counts(batch).await, [3, 1, 0, 1]);
        node.end(all[1], failed()).await;
        assert_eq!(node.states(all).await, [Succeeded, Failed, Cancelled]);
        assert_eq!(node.claim_ids(10).await, [done]);
    }

    #[proves("batch.callback", "batch.count", "batch.end")]
    #[needs(Workflows)]
    async fn fifty_children_that_end_at_once_are_all_counted_and_one_calls_back(cx: &Cx) {
        const CHILDREN: usize = 50;
        let nodes = cx.nodes(4).await;
        for round in 0..3 {
            let batch = nodes[0].batch().await;
            nodes[0].add_all(&children(batch, CHILDREN)).await;
            let done = nodes[0].add(callback(batch, BatchCondition::Ended)).await;
            let many = BatchCondition::FailuresReach(10);
            let many = nodes[0].add(callback(batch, many)).await;
            let claimed = nodes[0].claim(CHILDREN).await;
            assert_eq!(claimed.len(), CHILDREN);
            let close = round % 2 == 0;
            if !close {
                nodes[0].close(batch).await;
            }
            let ended = race(CHILDREN, |racer| {
                let node = nodes[racer % 4].sibling();
                let token = claimed[racer].claim.token;
                async move {
                    if close && racer == CHILDREN / 2 {
                        node.close(batch).await;
                    }
                    let outcome = match racer % 5 {
                        0 => failed(),
                        1 => Outcome::Cancelled,
                        _ => succeeded(),
                    };
                    // The racer settles twice, like a caller that lost the first reply.
                    for _ in 0..2 {
                        assert_eq!(node.settle(token, outcome.clone()).await, Fenced::Applied);
                    }
                    node.claim_ids(5).await
                }
            })
            .await;
            assert_eq!(nodes[1].counts(batch).await, [50, 30, 10, 10], "round {round}");
            assert!(nodes[1].read_batch(batch).await.ended_at.is_some());
            let mut had = ended.concat();
            had.extend(nodes[2].claim_ids(10).await);
            had.sort_unstable();
            assert_eq!(had, [done, many]);
        }
    }

    #[proves("batch.callback", "batch.end")]
    #[needs(Workflows)]
    async fn the_last_two_children_end_at_once_and_the_batch_ends_once(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        for round in 0..40 {
            let batch = nodes[0].batch().await;
            nodes[0].add_all(&children(batch, 2)).await;
            let done = nodes[0].add(callback(batch, BatchCondition::Succeeded)).await;
            nodes[0].close(batch).await;
            let claimed = nodes[0].claim(2).await;
            race(2, |racer| {
                let node = nodes[racer].sibling();
                let token = claimed[racer].claim.token;
                async move { node.succeed(token).await }
            })
            .await;
            assert_eq!(nodes[0].counts(batch).await, [2, 2, 0, 0], "round {round}");
            let claimed = nodes[1].claim(5).await;
            assert_eq!(ids(&claimed), [done], "round {round}");
            nodes[1].succeed(claimed[0].claim.token).await;
        }
    }

    #[proves("batch.callback", "link.enqueue", "batch.join")]
    #[needs(Workflows)]
    async fn callbacks_and_children_that_meet_the_close_miss_nothing(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for round in 0..20 {
            let batch = nodes[0].batch().await;
            let last = nodes[0].add(job().in_batch(batch)).await;
            let token = nodes[0].take_job(last).await;
            let done = callback(batch, BatchCondition::Ended);
            let late = job().in_batch(batch);
            let joined = race(4, |racer| {
                let node = nodes[racer].sibling();
                let (done, late) = (done.clone(), late.clone());
                async move {
                    match racer {
                        0 => node.succeed(token).await,
                        1 => node.close(batch).await,
                        2 => drop(node.add(done).await),
                        _ => return node.jobs().enqueue(&[late]).await.is_ok(),
                    }
                    false
                }
            })
            .await;
            let joined = joined.contains(&true);
            let total = nodes[0].counts(batch).await[0];
            assert_eq!(total, 1 + u64::from(joined), "round {round}");
            assert_eq!(nodes[0].find(late.id()).await.is_some(), joined);
            if joined {
                assert_eq!(nodes[0].state(done.id()).await, Blocked);
                nodes[0].end(late.id(), succeeded()).await;
            }
            assert_eq!(nodes[0].claim_ids(5).await, [done.id()], "round {round}");
            nodes[0].succeed(nodes[0].token(done.id(), 1).await).await;
        }
    }
}
