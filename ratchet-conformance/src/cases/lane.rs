//! Lanes: the jobs of a lane run one at a time, in the order in which the store accepted them.

use std::collections::{BTreeMap, BTreeSet};

use JobState::{Blocked, Cancelled, Failed, Paused, Pending, Running, Succeeded};

use super::prelude::*;

/// Returns `count` new jobs of one lane, in descending order of their ids. The order in which they
/// are enqueued therefore differs from the order of their ids.
fn lane_jobs(lane: &str, count: usize) -> Vec<NewJob> {
    let mut all: Vec<NewJob> = jobs(count).into_iter().map(|job| job.lane(lane)).collect();
    all.reverse();
    all
}

async fn states(node: &TestNode, all: &[JobId]) -> Vec<JobState> {
    let mut states = Vec::with_capacity(all.len());
    for id in all {
        states.push(node.state(*id).await);
    }
    states
}

/// Checks that each lane with unfinished jobs has exactly one unfinished job that is not blocked.
async fn assert_one_head_each(node: &TestNode) {
    let mut lanes: BTreeMap<(Name, Name), Vec<JobState>> = BTreeMap::new();
    for job in node.everything().await {
        if let Some(lane) = job.spec.lane.filter(|_| !job.state.is_terminal()) {
            let members = lanes.entry((job.spec.route.queue, lane)).or_default();
            members.push(job.state);
        }
    }
    for (lane, members) in lanes {
        let heads = members.iter().filter(|state| **state != Blocked).count();
        assert_eq!(heads, 1, "{lane:?}: {members:?}");
    }
}

fn failed() -> Outcome {
    let error = "it failed".to_owned();
    Outcome::Failed { error }
}

cases! {
    "lane" on Cx;

    #[proves("lane.sequence", "lane.head", "lane.promote")]
    #[needs(Clock, Lanes)]
    async fn jobs_go_in_the_order_of_their_enqueues_whatever_the_clock_says(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let mut all = Vec::new();
        for (number, job) in lane_jobs("l", 5).into_iter().enumerate() {
            all.push(nodes[number % 2].add(job).await);
            // Two jobs in a row have equal times, which are an hour before those of the previous
            // two jobs.
            if number % 2 == 1 {
                cx.set_back(HOUR).await;
            }
        }
        cx.advance(DAY).await;
        for (number, id) in all.iter().enumerate() {
            let node = &nodes[number % 2];
            let claimed = node.claim(10).await;
            assert_eq!(ids(&claimed), [*id], "job {number}");
            assert_eq!(node.claim_ids(10).await, []);
            node.succeed(claimed[0].claim.token).await;
        }
        assert_eq!(nodes[0].claim_ids(10).await, []);
    }

    #[proves("lane.sequence", "lane.head")]
    #[needs(Clock, Lanes)]
    async fn a_batch_enters_its_lanes_in_its_own_order(cx: &Cx) {
        let node = cx.node().await;
        let now = node.now().await;
        let (a, b) = (lane_jobs("a", 3), lane_jobs("b", 3));
        // Priorities and due times do not matter within a lane.
        let late = |job: &NewJob, minutes: u32| job.clone().run_at(now - minutes * MINUTE);
        let batch = [
            late(&a[0], 1).priority(Priority::Lowest),
            late(&b[0], 1),
            late(&a[1], 2).priority(Priority::Critical),
            late(&b[1], 5),
            late(&b[2], 3),
            late(&a[2], 9).priority(Priority::High),
        ];
        let all = node.add_all(&batch).await;
        let expected = [Pending, Pending, Blocked, Blocked, Blocked, Blocked];
        assert_eq!(states(&node, &all).await, expected);
        for (first, second) in [(1, 0), (3, 2), (4, 5)] {
            let claimed: BTreeSet<JobId> = {
                let claimed = node.claim(10).await;
                for job in &claimed {
                    node.succeed(job.claim.token).await;
                }
                ids(&claimed).into_iter().collect()
            };
            assert_eq!(claimed, BTreeSet::from([all[first], all[second]]));
        }
    }

    #[proves("lane.head", "get.whole", "claim.whole")]
    #[needs(Lanes)]
    async fn a_job_and_its_claim_show_the_lane(cx: &Cx) {
        let node = cx.node().await;
        let id = node.add(job().lane("Größe 42")).await;
        let plain = node.add(job()).await;
        let lane = Some(name("Größe 42"));
        cx.proving(["get.whole"]);
        assert_eq!(node.get(id).await.spec.lane, lane);
        assert_eq!(node.get(plain).await.spec.lane, None);
        let claimed = node.claim(10).await;
        cx.proving(["claim.whole"]);
        assert_eq!(claimed[0].claim.lane, lane);
        assert_eq!(claimed[1].claim.lane, None);
        node.release(claimed[0].claim.token).await;
        let lean = node.claim_lean(&node.request(1)).await;
        assert_eq!(lean[0].lane, lane);
    }

    #[proves("lane.hold", "lane.head")]
    #[needs(Clock, Lanes)]
    async fn a_head_that_backs_off_snoozes_or_is_handed_back_keeps_its_lane(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&lane_jobs("l", 2)).await;
        let snooze = Outcome::Snoozed { delay: MINUTE };
        for (outcome, delay) in [
            (retry(MINUTE), MINUTE),
            (snooze, MINUTE),
            (Outcome::Released, Duration::ZERO),
            (Outcome::Undelivered, Duration::ZERO),
        ] {
            let claimed = node.claim_one().await;
            assert_eq!(claimed.claim.token.job, all[0]);
            assert_eq!(states(&node, &all).await, [Running, Blocked]);
            assert_eq!(node.claim_ids(10).await, []);
            node.settle(claimed.claim.token, outcome).await;
            assert_eq!(states(&node, &all).await, [Pending, Blocked]);
            if !delay.is_zero() {
                cx.advance(delay - MILLI).await;
                assert_eq!(node.claim_ids(10).await, []);
                cx.advance(MILLI).await;
            }
        }
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), all[..1]);
    }

    #[proves("lane.head", "lane.promote", "pause.job")]
    #[needs(Clock, Lanes)]
    async fn a_delayed_or_paused_head_holds_up_its_lane(cx: &Cx) {
        let node = cx.node().await;
        let batch = lane_jobs("l", 4);
        let batch = [
            batch[0].clone().delay(MINUTE),
            batch[1].clone(),
            batch[2].clone().delay(2 * MINUTE),
            batch[3].clone(),
        ];
        let all = node.add_all(&batch).await;
        let due = node.get(all[2]).await.run_at;
        cx.proving(["lane.head"]);
        assert_eq!(node.claim_ids(10).await, []);
        cx.advance(MINUTE).await;
        let first = node.take().await;
        assert_eq!(first.job, all[0]);
        node.succeed(first).await;
        cx.proving(["pause.job"]);
        assert_eq!(node.act(all[1], JobAction::Pause).await, ActionOutcome::Became(Paused));
        let refused = ActionOutcome::Refused(Blocked);
        assert_eq!(node.act(all[2], JobAction::Pause).await, refused);
        cx.proving(["lane.head"]);
        assert_eq!(node.claim_ids(10).await, []);
        assert_eq!(states(&node, &all[1..]).await, [Paused, Blocked, Blocked]);
        cx.proving(["pause.job"]);
        assert_eq!(node.act(all[1], JobAction::Resume).await, ActionOutcome::Became(Pending));
        let second = node.take().await;
        assert_eq!(second.job, all[1]);
        cx.proving(["lane.promote"]);
        // A promoted job keeps its own due time.
        node.succeed(second).await;
        let promoted = node.get(all[2]).await;
        assert_eq!((promoted.state, promoted.run_at), (Pending, due));
        assert_eq!(node.claim_ids(10).await, []);
        cx.advance(MINUTE).await;
        assert_eq!(node.claim_ids(10).await, all[2..3]);
    }

    #[proves("lane.sequence", "lane.head", "lane.promote")]
    #[needs(Lanes)]
    async fn the_second_job_of_a_lane_waits_for_the_first_whatever_that_does(cx: &Cx) {
        let node = cx.node().await;
        for how in ["is due", "is due later", "is paused", "runs", "backs off"] {
            let first = job().lane(how);
            let first = match how {
                "is due later" => node.add(first.delay(HOUR)).await,
                _ => node.add(first).await,
            };
            match how {
                "is paused" => drop(node.act(first, JobAction::Pause).await),
                "runs" => drop(node.take_job(first).await),
                "backs off" => drop(node.settle(node.take_job(first).await, retry(HOUR)).await),
                _ => {}
            }
            let second = node.add(job().lane(how)).await;
            assert_eq!(node.state(second).await, Blocked, "{how}");
            if how == "runs" {
                node.succeed(node.present(first).await).await;
            } else {
                node.act(first, JobAction::Cancel).await;
            }
            assert_eq!(node.state(second).await, Pending, "{how}");
            // A job that is added to a lane without unfinished jobs becomes its head.
            node.act(second, JobAction::Cancel).await;
            let third = node.add(job().lane(how)).await;
            assert_eq!(node.state(third).await, Pending, "{how}");
            node.act(third, JobAction::Cancel).await;
        }
    }

    #[proves("lane.head")]
    #[needs(Lanes)]
    async fn a_waiting_lane_delays_no_other_job(cx: &Cx) {
        let node = cx.node().await;
        let stuck = node.add_all(&lane_jobs("stuck", 2)).await;
        node.act(stuck[0], JobAction::Pause).await;
        let other = node.add_all(&lane_jobs("other", 2)).await;
        let plain = node.add_all(&jobs(2)).await;
        let claimed = node.claim(10).await;
        let had: BTreeSet<JobId> = ids(&claimed).into_iter().collect();
        assert_eq!(had, BTreeSet::from([other[0], plain[0], plain[1]]));
        for job in claimed {
            node.succeed(job.claim.token).await;
        }
        assert_eq!(node.claim_ids(10).await, other[1..]);
    }

    #[proves("lane.head", "lane.promote")]
    #[needs(Lanes)]
    async fn the_end_of_a_lane_leaves_the_others_of_its_queue(cx: &Cx) {
        let node = cx.node().await;
        let ends = node.add(job().lane("a")).await;
        let stays = node.add(job().lane("b")).await;
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), [ends, stays]);
        node.succeed(claimed[0].claim.token).await;
        let behind = node.add(job().lane("b")).await;
        assert_eq!(node.state(behind).await, Blocked);
        node.succeed(claimed[1].claim.token).await;
        assert_eq!(node.claim_ids(10).await, [behind]);
    }

    #[proves("lane.sequence", "lane.head")]
    #[needs(Lanes)]
    async fn one_name_in_two_queues_is_two_lanes(cx: &Cx) {
        let node = cx.node().await;
        let mut all = Vec::new();
        for queue in ["x", "y"] {
            let batch = lane_jobs("l", 2).into_iter().map(|job| job.queue(queue));
            all.extend(node.add_all(&batch.collect::<Vec<_>>()).await);
        }
        assert_eq!(states(&node, &all).await, [Pending, Blocked, Pending, Blocked]);
        // Lane names are compared exactly, and kinds do not matter.
        let upper = node.add(job().queue("x").lane("L")).await;
        let kind = node.add(NewJob::new("other", &1).queue("x").lane("l")).await;
        assert_eq!(states(&node, &[upper, kind]).await, [Pending, Blocked]);
        for job in node.claim(10).await {
            if job.claim.token.job == all[2] {
                node.succeed(job.claim.token).await;
            }
        }
        assert_eq!(states(&node, &all).await, [Running, Blocked, Succeeded, Pending]);
    }

    #[proves("lane.promote")]
    #[needs(Lanes)]
    async fn every_end_of_a_head_lets_exactly_the_next_go(cx: &Cx) {
        let node = cx.node().await;
        let result = Outcome::Succeeded { result: None };
        for (end, state) in [
            (result, Succeeded),
            (failed(), Failed),
            (Outcome::Cancelled, Cancelled),
        ] {
            let lane = format!("{state}");
            let all = node.add_all(&lane_jobs(&lane, 3)).await;
            let token = node.take().await;
            assert_eq!(token.job, all[0]);
            assert_eq!(node.settle(token, end).await, Fenced::Applied);
            assert_eq!(states(&node, &all).await, [state, Pending, Blocked]);
            assert_eq!(node.claim_ids(10).await, all[1..2]);
        }
        // Cancels heads that do not run, and then a head that runs.
        let all = node.add_all(&lane_jobs("acted on", 4)).await;
        node.act(all[0], JobAction::Cancel).await;
        node.act(all[1], JobAction::Pause).await;
        node.act(all[1], JobAction::Cancel).await;
        assert_eq!(states(&node, &all).await, [Cancelled, Cancelled, Pending, Blocked]);
        let token = node.take().await;
        assert_eq!(node.act(all[2], JobAction::Cancel).await, ActionOutcome::CancelRequested);
        assert_eq!(states(&node, &all[2..]).await, [Running, Blocked]);
        assert_eq!(node.settle(token, retry(SECOND)).await, Fenced::Applied);
        assert_eq!(states(&node, &all[2..]).await, [Cancelled, Pending]);
        assert_one_head_each(&node).await;
    }

    #[proves("lane.promote", "settle.mixed")]
    #[needs(Lanes)]
    async fn one_call_ends_the_heads_of_many_lanes(cx: &Cx) {
        let node = cx.node().await;
        let mut rest = Vec::new();
        for lane in ["d", "b", "a", "c"] {
            rest.push(node.add_all(&lane_jobs(lane, 2)).await[1]);
        }
        let plain = node.add(job()).await;
        let claimed = node.claim(10).await;
        let mut ends: Vec<Settlement> = claimed
            .iter()
            .map(|job| Settlement::new(job.claim.token, failed()))
            .collect();
        ends[3] = Settlement::new(claimed[3].claim.token, retry(HOUR));
        ends.push(Settlement::new(node.token(rest[0], 1).await, failed()));
        let mut expected = vec![Fenced::Applied; 5];
        expected.push(Fenced::Stale);
        assert_eq!(node.settle_all(&ends).await, expected);
        assert_eq!(states(&node, &rest).await, [Pending, Pending, Pending, Blocked]);
        assert_eq!(node.state(plain).await, Failed);
        // One call cancels several jobs of one lane.
        let all = node.add_all(&lane_jobs("e", 5)).await;
        let selected = [all[2], all[0], all[1], all[4], all[0]];
        let acted = node
            .act_on(&JobSelector::Ids(selected.to_vec()), JobAction::Cancel)
            .await;
        let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
        let became = ActionOutcome::Became(Cancelled);
        let refused = ActionOutcome::Refused(Cancelled);
        assert_eq!(outcomes, [became, became, became, became, refused]);
        assert_eq!(node.state(all[3]).await, Pending);
        assert_one_head_each(&node).await;
    }

    #[proves("lane.promote", "settle.repeat")]
    #[needs(Lanes)]
    async fn a_stale_or_repeated_end_releases_no_job(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&lane_jobs("l", 3)).await;
        let old = node.take().await;
        node.release(old).await;
        let released = node.take().await;
        node.release(released).await;
        let token = node.take().await;
        for end in [failed(), Outcome::Cancelled] {
            assert_eq!(node.settle(old, end).await, Fenced::Stale);
            assert_eq!(states(&node, &all).await, [Running, Blocked, Blocked]);
        }
        let twice = [
            Settlement::new(token, failed()),
            Settlement::new(token, failed()),
        ];
        assert_eq!(node.settle_all(&twice).await, [Fenced::Applied; 2]);
        assert_eq!(states(&node, &all).await, [Failed, Pending, Blocked]);
        assert_eq!(node.settle(token, failed()).await, Fenced::Applied);
        assert_eq!(states(&node, &all).await, [Failed, Pending, Blocked]);
        let next = node.take().await;
        assert_eq!(node.settle(token, failed()).await, Fenced::Applied);
        assert_eq!(states(&node, &all).await, [Failed, Running, Blocked]);
        node.succeed(next).await;
        assert_eq!(states(&node, &all).await, [Failed, Succeeded, Pending]);
    }

    #[proves("lane.hold", "lane.promote", "reclaim.exhausted")]
    #[needs(Clock, Lanes)]
    async fn a_lost_head_keeps_its_lane_until_it_is_given_up(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let all = nodes[0].add_all(&lane_jobs("l", 2)).await;
        let request = reclaim().max_crashes(1);
        for crash in 1..=2 {
            let token = nodes[0].take().await;
            assert_eq!(token.job, all[0]);
            nodes[0].alive(token).await;
            cx.advance(MINUTE).await;
            let lost = nodes[1].reclaim(&request).await;
            assert_eq!(lost.len(), 1);
            cx.proving(["reclaim.exhausted"]);
            assert_eq!(lost[0].exhausted, crash == 2);
            cx.proving(["lane.hold"]);
            let state = if crash == 2 { Running } else { Pending };
            assert_eq!(states(&nodes[1], &all).await, [state, Blocked]);
            if lost[0].exhausted {
                assert_eq!(nodes[1].claim_ids(10).await, []);
                nodes[1].fail(lost[0].token).await;
            }
        }
        cx.proving(["lane.promote"]);
        assert_eq!(states(&nodes[1], &all).await, [Failed, Pending]);
        // A job with a cancel request ends when it is reclaimed.
        let last = nodes[1].add(job().lane("l")).await;
        let token = nodes[0].take().await;
        assert_eq!(token.job, all[1]);
        nodes[1].act(all[1], JobAction::Cancel).await;
        cx.advance(MINUTE).await;
        assert_eq!(nodes[1].reclaim(&request).await.len(), 1);
        assert_eq!(states(&nodes[1], &[all[1], last]).await, [Cancelled, Pending]);
        assert_eq!(nodes[1].claim_ids(10).await, [last]);
    }

    #[proves("lane.requeue", "requeue.fresh")]
    #[needs(Lanes)]
    async fn a_requeued_dead_letter_goes_to_the_end_of_its_lane(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&lane_jobs("l", 4)).await;
        for _ in 0..2 {
            let token = node.take().await;
            node.fail(token).await;
        }
        // The actions apply in the order of the ids. When the first id comes again, its job is no
        // longer a dead letter.
        let selected = JobSelector::Ids(vec![all[1], all[0], all[1]]);
        let acted = node.act_on(&selected, JobAction::Requeue).await;
        let outcomes: Vec<ActionOutcome> = acted.iter().map(|one| one.outcome).collect();
        let became = ActionOutcome::Became(Blocked);
        assert_eq!(outcomes, [became, became, ActionOutcome::Refused(Blocked)]);
        assert_eq!(states(&node, &all).await, [Blocked, Blocked, Pending, Blocked]);
        for next in [all[2], all[3], all[1], all[0]] {
            let token = node.take().await;
            assert_eq!(token.job, next);
            node.fail(token).await;
        }
        // A job that is requeued into a lane without unfinished jobs becomes its head, and later
        // jobs wait for it.
        let outcome = node.act(all[3], JobAction::Requeue).await;
        assert_eq!(outcome, ActionOutcome::Became(Pending));
        let outcome = node.act(all[2], JobAction::Requeue).await;
        assert_eq!(outcome, became);
        let last = node.add(job().lane("l")).await;
        for next in [all[3], all[2], last] {
            let token = node.take().await;
            assert_eq!(token.job, next);
            node.succeed(token).await;
        }
        assert_eq!(node.claim_ids(10).await, []);
    }

    #[proves("lane.sequence", "keys.unique", "keys.idempotency", "enqueue.repeat")]
    #[needs(Lanes, IdempotencyKeys)]
    async fn what_is_not_stored_takes_no_place(cx: &Cx) {
        let node = cx.node().await;
        let first = node.add(job().lane("l").unique_key("u").idempotency_key("i")).await;
        let second = job().lane("l");
        node.add(second.clone()).await;
        let batch = [
            job().lane("l").unique_key("u"),
            second.clone(),
            job().lane("l").idempotency_key("i"),
            // The lane of this job stays empty, because the job is a duplicate.
            job().lane("empty").unique_key("u"),
            job().lane("l").idempotency_key("new"),
        ];
        cx.proving(["keys.unique", "keys.idempotency", "enqueue.repeat"]);
        let answers = node.enqueue(&batch).await;
        let duplicate = Enqueued::Duplicate(first);
        let last = batch[4].id();
        let created = Enqueued::Created(last);
        let repeated = Enqueued::Created(second.id());
        assert_eq!(answers, [duplicate, repeated, duplicate, duplicate, created]);
        cx.proving(["lane.sequence"]);
        for id in [first, second.id(), last] {
            let claimed = node.claim(10).await;
            assert_eq!(ids(&claimed), [id]);
            node.succeed(claimed[0].claim.token).await;
        }
        cx.proving(["enqueue.repeat"]);
        // An enqueue that is repeated after the job's end adds no job to a lane, so both lanes are
        // empty.
        assert_eq!(node.offer(&second).await, repeated);
        cx.proving(["lane.sequence"]);
        for lane in ["l", "empty"] {
            let id = node.add(job().lane(lane)).await;
            assert_eq!(node.state(id).await, Pending, "{lane}");
        }
    }

    #[proves("lane.cancel")]
    #[needs(Lanes)]
    async fn a_blocked_job_that_is_cancelled_leaves_the_rest_as_they_are(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&lane_jobs("l", 4)).await;
        let became = ActionOutcome::Became(Cancelled);
        assert_eq!(node.act(all[1], JobAction::Cancel).await, became);
        assert_eq!(states(&node, &all).await, [Pending, Cancelled, Blocked, Blocked]);
        let token = node.take().await;
        assert_eq!(token.job, all[0]);
        assert_eq!(node.act(all[3], JobAction::Cancel).await, became);
        assert_eq!(states(&node, &all).await, [Running, Cancelled, Blocked, Cancelled]);
        node.succeed(token).await;
        assert_eq!(node.claim_ids(10).await, all[2..3]);
    }

    #[proves("lane.cancel", "pause.job")]
    #[needs(Lanes)]
    async fn a_cancel_in_a_lane_leaves_its_paused_head_paused(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&lane_jobs("l", 4)).await;
        node.act(all[0], JobAction::Pause).await;
        node.act(all[2], JobAction::Cancel).await;
        assert_eq!(states(&node, &all).await, [Paused, Blocked, Cancelled, Blocked]);
        let rest = JobSelector::Ids(vec![all[3], all[1]]);
        node.act_on(&rest, JobAction::Cancel).await;
        assert_eq!(states(&node, &all).await, [Paused, Cancelled, Cancelled, Cancelled]);
        let last = node.add(job().lane("l")).await;
        assert_eq!(node.claim_ids(10).await, []);
        node.act(all[0], JobAction::Resume).await;
        assert_eq!(node.claim_ids(10).await, all[..1]);
        assert_eq!(node.state(last).await, Blocked);
    }

    #[proves("lane.promote", "errors.poison", "claim.damaged")]
    #[needs(Vandal, Lanes)]
    async fn a_head_that_cannot_be_read_ends_and_lets_the_next_go(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&lane_jobs("l", 2)).await;
        if let Err(error) = cx.vandal().spoil(all[0]).await {
            panic!("the fixture could not damage the row: {error}");
        }
        let mut claimed = node.claim_ids(10).await;
        // A claim that finds the unreadable head ends it, which promotes the next job. A store may
        // or may not return that job in the same claim.
        if claimed.is_empty() {
            claimed = node.claim_ids(10).await;
        }
        assert_eq!(claimed, all[1..]);
        assert_eq!(node.state(all[0]).await, Failed);
    }

    #[proves("lane.head", "lane.sequence", "lane.promote")]
    #[needs(Lanes)]
    async fn many_on_one_lane_never_leave_it_stuck_nor_with_two_heads(cx: &Cx) {
        const EACH: usize = 25;
        let nodes = cx.nodes(4).await;
        let order = race(8, |racer| {
            let node = nodes[racer % 4].sibling();
            async move {
                let mut had = Vec::new();
                if racer < 3 {
                    // The producers enqueue single jobs and batches in several lanes.
                    for number in 0..EACH {
                        let lanes = ["l", "m", "n"];
                        let payload = racer * EACH + number;
                        let new = |lane: &&str| NewJob::new("kind", &payload).lane(lane);
                        let batch: Vec<NewJob> = lanes.iter().map(new).collect();
                        node.add_all(&batch[..=number % 3]).await;
                    }
                    return had;
                }
                // The racer claims and ends jobs in various ways until it has claimed nothing for a
                // while.
                let mut idle = 0;
                while idle < 60 {
                    let claimed = node.claim(3).await;
                    idle = if claimed.is_empty() { idle + 1 } else { 0 };
                    if claimed.is_empty() {
                        tokio::time::sleep(5 * MILLI).await;
                    }
                    for job in claimed {
                        let end = match fastrand::u8(0..5) {
                            0 => failed(),
                            1 => Outcome::Cancelled,
                            2 => retry(Duration::ZERO),
                            _ => Outcome::Succeeded { result: None },
                        };
                        let ends = !matches!(end, Outcome::Retry { .. });
                        let lane = job.claim.lane.clone();
                        if ends && lane == Some(name("l")) {
                            had.push((job.claim.token.job, input(&job).payload.clone()));
                        }
                        // The racer settles twice, like a caller that lost the first reply.
                        let both = [
                            Settlement::new(job.claim.token, end.clone()),
                            Settlement::new(job.claim.token, end),
                        ];
                        let answers = node.settle_all(&both).await;
                        // After a retry, another node may claim and settle the job between the two
                        // settlements.
                        let expected = if ends { 2 } else { 1 };
                        let applied = [Fenced::Applied; 2];
                        assert_eq!(answers[..expected], applied[..expected]);
                    }
                }
                had
            }
        })
        .await;
        assert_one_head_each(&nodes[0]).await;
        let left: Vec<JobRecord> = nodes[0].everything().await;
        let left: Vec<&JobRecord> = left.iter().filter(|job| !job.state.is_terminal()).collect();
        assert_eq!(left, Vec::<&JobRecord>::new(), "expected every job of the lane to end");
        assert_eq!(order.iter().map(Vec::len).sum::<usize>(), 3 * EACH);
        // Each racer ended the lane's jobs in the order in which each producer enqueued them.
        for had in order {
            let numbers: Vec<usize> = had
                .iter()
                .filter_map(|(_, payload)| payload.as_str().parse().ok())
                .collect();
            assert_eq!(numbers.len(), had.len());
            for racer in 0..3 {
                let own = numbers.iter().filter(|number| *number / EACH == racer);
                assert!(own.is_sorted(), "{numbers:?}");
            }
        }
    }

    #[proves("lane.head", "lane.requeue", "lane.cancel")]
    #[needs(Lanes)]
    async fn operators_and_nodes_meet_on_a_lane(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        let all = nodes[0].add_all(&lane_jobs("l", 40)).await;
        race(6, |racer| {
            let node = nodes[racer % 4].sibling();
            let all = all.clone();
            async move {
                for round in 0..20 {
                    let some: Vec<JobId> = (0..4)
                        .map(|_| all[fastrand::usize(..all.len())])
                        .collect();
                    match (racer + round) % 5 {
                        0 => drop(node.add(job().lane("l")).await),
                        1 => {
                            let action = [JobAction::Cancel, JobAction::Requeue][racer % 2];
                            node.act_on(&JobSelector::Ids(some), action).await;
                        }
                        _ => {
                            for job in node.claim(5).await {
                                node.settle(job.claim.token, failed()).await;
                            }
                        }
                    }
                }
            }
        })
        .await;
        assert_one_head_each(&nodes[0]).await;
        // All remaining jobs can run, one after the other.
        while let [job] = &nodes[0].claim(5).await[..] {
            nodes[0].succeed(job.claim.token).await;
        }
        let left = nodes[0].everything().await;
        assert!(left.iter().all(|job| job.state.is_terminal()));
    }
}
