//! Many queues: the answers are those of a few queues, however the store keeps the jobs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratchet_core::Route;

use super::prelude::*;

/// The number of queues. It is larger than the number of queues that a store keeps apart.
const QUEUES: usize = 60;
const KINDS: [&str; 2] = ["a", "b"];

fn queue(number: usize) -> String {
    format!("q{number:02}")
}

fn of(kind: &str, number: usize) -> NewJob {
    NewJob::new(kind, &number).queue(&queue(number))
}

/// Stores jobs of different kinds and priorities in each queue, and returns their records in the
/// order in which claims without aging take them.
async fn fill(node: &TestNode) -> Vec<JobRecord> {
    for round in 0..3 {
        let priority =
            |number| [Priority::Low, Priority::Normal, Priority::High][(number + round) % 3];
        let new = |number| of(KINDS[(number + round) % 2], number).priority(priority(number));
        let mut batch: Vec<NewJob> = (0..QUEUES).map(new).collect();
        // The order of the queues in the claim order is neither that of their names nor that of
        // their first use.
        batch.rotate_left(17 * round);
        node.add_all(&batch).await;
    }
    let mut jobs = node.everything().await;
    jobs.sort_by_key(|job| (std::cmp::Reverse(job.spec.priority), job.run_at, job.id));
    jobs
}

/// Returns the ids of the jobs that match the request, in the order of `jobs`.
fn matching(jobs: &[JobRecord], request: &ClaimRequest) -> Vec<JobId> {
    let matching = jobs.iter().filter(|job| job.spec.route.matches(request));
    matching.map(|job| job.id).collect()
}

/// Claims all jobs that match the request, a few at a time.
async fn drain(node: &TestNode, request: &ClaimRequest) -> Vec<JobId> {
    let mut claimed = Vec::new();
    loop {
        let batch = ids(&node.claim_with(request).await);
        if batch.is_empty() {
            return claimed;
        }
        claimed.extend(batch);
    }
}

fn request(node: &TestNode, limit: usize) -> ClaimRequest {
    node.request(limit).aging(Aging::OFF)
}

/// Returns the names of these queues.
fn some(numbers: impl IntoIterator<Item = usize>) -> Vec<Name> {
    numbers
        .into_iter()
        .map(|number| name(&queue(number)))
        .collect()
}

/// Separates queues until no job has to move.
async fn separate(node: &TestNode) {
    while ok(node.store.queues().separate_queues(1_000).await) == 1_000 {}
}

/// What the reads of a store return that select by queue.
async fn read(node: &TestNode) -> (Vec<QueueInfo>, BTreeSet<Route>, Vec<u64>, Vec<Vec<JobId>>) {
    let mut counts = Vec::new();
    let mut lists = Vec::new();
    for number in (0..QUEUES).step_by(9) {
        counts.push(node.count_due(&queue(number), 2).await);
        for kind in [None, Some("a")] {
            for states in [vec![], vec![JobState::Pending], vec![JobState::Cancelled]] {
                let mut filter = JobFilter::all().queue(name(&queue(number)));
                filter.kind = kind.map(name);
                filter.states = states;
                lists.push(node.walk(&filter, JobOrder::OldestFirst, 2).await);
                let counted = ok(node.jobs().count_jobs(&filter).await);
                counts.push(counted.values().sum());
            }
        }
    }
    let due = node.due_routes().await;
    let routes: BTreeSet<Route> = due.iter().map(|due| due.route.clone()).collect();
    assert_eq!(routes.len(), due.len(), "expected each route once");
    (node.queues().await, routes, counts, lists)
}

cases! {
    "queues" on Cx;

    #[proves("claim.match", "claim.order")]
    async fn a_claim_of_all_queues_takes_the_first_jobs_of_all(cx: &Cx) {
        let node = cx.node().await;
        let jobs = fill(&node).await;
        for kind in KINDS {
            let request = request(&node, 7).kinds(Selection::Only(names([kind])));
            assert_eq!(drain(&node, &request).await, matching(&jobs, &request));
        }
        assert!(node.claim(1).await.is_empty());
    }

    #[proves("claim.match", "claim.order")]
    async fn a_claim_of_forty_queues_by_name_takes_their_first_jobs(cx: &Cx) {
        let node = cx.node().await;
        let jobs = fill(&node).await;
        let only = some((0..QUEUES).filter(|number| number % 3 != 0));
        let claims = request(&node, 9).queues(Selection::Only(only));
        assert_eq!(drain(&node, &claims).await, matching(&jobs, &claims));
        let rest = node.claim(1_000).await;
        assert_eq!(rest.len(), QUEUES, "expected the jobs of the other queues to be left");
    }

    #[proves("claim.due", "claim.order", "queue.due", "queue.depth", "queue.pause")]
    #[needs(Clock)]
    async fn jobs_of_many_queues_wait_until_they_are_due(cx: &Cx) {
        let node = cx.node().await;
        let delayed = |number| of("a", number).delay(MINUTE);
        let numbers = (0..QUEUES).chain([40; 5]);
        node.add_all(&numbers.map(delayed).collect::<Vec<_>>()).await;
        let mut jobs = node.everything().await;
        jobs.sort_by_key(|job| job.id);
        let all = request(&node, 7);
        let named = |numbers| request(&node, 7).queues(Selection::Only(some(numbers)));
        let claim_nothing = async || {
            assert!(node.claim_with(&all).await.is_empty());
            assert!(node.claim_with(&named(0..QUEUES)).await.is_empty());
        };
        cx.advance(MINUTE - MILLI).await;
        claim_nothing().await;
        assert_eq!(node.due_routes().await, []);
        assert_eq!(node.count_due(&queue(40), 10).await, 0);
        cx.advance(MILLI).await;
        assert_eq!(node.due_routes().await.len(), QUEUES);
        assert_eq!(node.count_due(&queue(40), 10).await, 6);
        node.pause_kind("a").await;
        claim_nothing().await;
        node.resume_kind("a").await;
        let one = named(40..41).limit(3);
        assert_eq!(drain(&node, &one).await, matching(&jobs, &one));
        jobs.retain(|job| !job.spec.route.matches(&one));
        assert_eq!(drain(&node, &all).await, matching(&jobs, &all));
    }

    #[proves("claim.match", "claim.order", "queue.separate")]
    async fn a_claim_leaves_excluded_queues_out(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let jobs = fill(&nodes[0]).await;
        // In the claim order, their jobs are between those of others.
        let except = some((0..QUEUES).filter(|number| number % 3 == 2 || number % 5 == 1));
        let all = request(&nodes[0], 1_000);
        let excluding = request(&nodes[0], 8).queues(Selection::Except(except.clone()));
        let expected = matching(&jobs, &excluding);
        assert_eq!(ids(&nodes[0].claim_with(&excluding).await), expected[..8]);
        // From now on, the store may keep the excluded queues apart from the others.
        separate(&nodes[0]).await;
        let added = nodes[1].add(of("a", 5).priority(Priority::Critical)).await;
        assert_eq!(drain(&nodes[0], &excluding).await, expected[8..]);
        let only = request(&nodes[1], 3).queues(Selection::Only(except));
        let expected = [&[added], &*matching(&jobs, &only)].concat();
        assert_eq!(drain(&nodes[1], &only).await, expected);
        assert!(nodes[0].claim_with(&all).await.is_empty());
    }

    #[proves("queue.pause", "queue.resume", "queue.separate")]
    async fn paused_queues_wait_and_then_go_on_in_order(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let jobs = fill(&nodes[0]).await;
        let paused = some((0..QUEUES).filter(|number| number % 4 == 1));
        for queue in &paused {
            nodes[0].pause_queue(queue.as_str()).await;
        }
        let all = request(&nodes[0], 11);
        let others = all.clone().queues(Selection::Except(paused.clone()));
        let expected = matching(&jobs, &others);
        assert_eq!(ids(&nodes[0].claim_with(&all).await), expected[..11]);
        let named = request(&nodes[1], 5).queues(Selection::Only(paused.clone()));
        assert!(nodes[1].claim_with(&named).await.is_empty());
        separate(&nodes[0]).await;
        // The other handle may not know yet that the queue is kept apart.
        let added = nodes[1].add(of("b", 1).priority(Priority::Critical)).await;
        assert!(nodes[1].claim_with(&named).await.is_empty());
        assert_eq!(drain(&nodes[0], &all).await, expected[11..]);
        for queue in &paused {
            nodes[1].resume_queue(queue.as_str()).await;
        }
        let expected = [&[added], &*matching(&jobs, &named)].concat();
        assert_eq!(drain(&nodes[0], &all).await, expected);
    }

    #[proves("queue.separate", "queue.list", "queue.due", "queue.depth", "page.filter", "count.filter")]
    async fn reads_by_queue_are_the_same_before_and_after_queues_are_separated(cx: &Cx) {
        let node = cx.node().await;
        let jobs = fill(&node).await;
        for job in jobs.iter().step_by(7) {
            node.act(job.id, JobAction::Cancel).await;
        }
        for number in (0..QUEUES).step_by(6) {
            node.pause_queue(&queue(number)).await;
        }
        let found = node.get_all(&jobs.iter().map(|job| job.id).collect::<Vec<_>>()).await;
        for (job, found) in jobs.iter().zip(&found) {
            assert_eq!(found.as_ref().map(|job| &job.spec.route), Some(&job.spec.route));
        }
        let before = read(&node).await;
        let counted: u64 = before.0.iter().flat_map(|info| info.counts.values()).sum();
        assert_eq!((before.0.len(), counted), (QUEUES, 3 * QUEUES as u64));
        assert!(before.2.iter().any(|count| *count > 0));
        separate(&node).await;
        assert_eq!(read(&node).await, before);
        assert_eq!(read(&cx.node().await).await, before);
        assert_eq!(node.get_all(&jobs.iter().map(|job| job.id).collect::<Vec<_>>()).await, found);
    }

    #[proves("queue.separate", "claim.exclusive", "claim.limit")]
    async fn claims_get_each_job_once_while_queues_are_separated(cx: &Cx) {
        let nodes = cx.nodes(3).await;
        let mut all: Vec<JobId> = fill(&nodes[0]).await.iter().map(|job| job.id).collect();
        for number in 0..QUEUES {
            nodes[0].pause_queue(&queue(number)).await;
        }
        let claimed = race(6, |racer| {
            let node = nodes[racer % 3].sibling();
            async move {
                if racer < 2 {
                    for number in (racer..QUEUES).step_by(2) {
                        node.resume_queue(&queue(number)).await;
                        ok(node.store.queues().separate_queues(2).await);
                    }
                    return Vec::new();
                }
                let mut claimed = Vec::new();
                for round in 0..40 {
                    let request = request(&node, 1 + round % 5);
                    claimed.extend(ids(&node.claim_with(&request).await));
                }
                claimed
            }
        })
        .await;
        let mut claimed = claimed.concat();
        claimed.extend(drain(&nodes[0], &request(&nodes[0], 10)).await);
        claimed.sort_unstable();
        all.sort_unstable();
        assert_eq!(claimed, all);
    }

    #[proves("queue.separate", "claim.limit")]
    async fn a_claim_overlooks_no_job_that_moves(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        fill(&nodes[0]).await;
        let excluded = 40..QUEUES;
        let excluding = request(&nodes[0], 1).queues(Selection::Except(some(excluded.clone())));
        nodes[0].claim_with(&excluding).await;
        let (mover, claimer) = (nodes[0].sibling(), nodes[1].sibling());
        race(2, |racer| {
            let (mover, claimer, excluded) = (mover.clone(), claimer.clone(), excluded.clone());
            async move {
                if racer == 0 {
                    while ok(mover.store.queues().separate_queues(1).await) > 0 {}
                    return;
                }
                // These claims run while jobs of their queues move. A claim may leave a job out in
                // the moment in which it moves.
                for number in excluded {
                    let only = request(&claimer, 10).queues(Selection::Only(some([number])));
                    let mut claimed = 0;
                    while claimed < 3 {
                        claimed += claimer.claim_with(&only).await.len();
                    }
                    assert_eq!(claimed, 3, "of queue {number}");
                }
            }
        })
        .await;
    }

    #[proves("queue.separate", "count.filter", "page.filter", "queue.due", "queue.depth")]
    async fn reads_overlook_no_job_that_moves(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        fill(&nodes[0]).await;
        let excluded = 20..QUEUES;
        let excluding = request(&nodes[0], 1).queues(Selection::Except(some(excluded.clone())));
        nodes[0].claim_with(&excluding).await;
        let is_moving = Arc::new(AtomicBool::new(true));
        let (mover, reader) = (nodes[0].sibling(), nodes[1].sibling());
        race(2, |racer| {
            let (mover, reader, excluded) = (mover.clone(), reader.clone(), excluded.clone());
            let is_moving = Arc::clone(&is_moving);
            async move {
                if racer == 0 {
                    let mut moved = Ok(1);
                    while matches!(moved, Ok(1)) {
                        moved = mover.store.queues().separate_queues(1).await;
                    }
                    is_moving.store(false, Ordering::SeqCst);
                    assert_eq!(ok(moved), 0);
                    return;
                }
                let names = some(excluded.clone());
                while is_moving.load(Ordering::SeqCst) {
                    let (mut counted, mut listed) = (0, 0);
                    for kind in KINDS {
                        let filter = JobFilter::all().kind(name(kind)).state(JobState::Pending);
                        let counts = ok(reader.jobs().count_jobs(&filter).await);
                        counted += counts.values().sum::<u64>();
                        listed += reader.walk(&filter, JobOrder::OldestFirst, 1_000).await.len();
                    }
                    assert_eq!((counted, listed), (3 * QUEUES as u64 - 1, 3 * QUEUES - 1));
                    let due = reader.due_routes().await;
                    let due = due.iter().filter(|due| names.contains(&due.route.queue));
                    assert_eq!(due.count(), 2 * names.len());
                    let mut depth = 0;
                    for number in excluded.clone() {
                        depth += reader.count_due(&queue(number), 10).await;
                    }
                    assert_eq!(depth, 3 * names.len() as u64);
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }

    #[proves("lane.requeue", "lane.promote")]
    #[needs(Lanes)]
    async fn lanes_of_one_name_in_many_queues_are_independent(cx: &Cx) {
        let node = cx.node().await;
        fill(&node).await;
        let lane = |number| of("lane", number).lane("l");
        let only = request(&node, 1_000).kinds(Selection::Only(names(["lane"])));
        let heads = node.add_all(&[lane(50), lane(51)]).await;
        let next = node.add_all(&[lane(50), lane(51)]).await;
        let claimed = node.claim_with(&only).await;
        assert_eq!(ids(&claimed), heads);
        for job in &claimed {
            node.fail(job.claim.token).await;
        }
        let claimed = node.claim_with(&only).await;
        assert_eq!(ids(&claimed), next);
        assert_eq!(
            node.act(heads[0], JobAction::Requeue).await,
            ActionOutcome::Became(JobState::Blocked)
        );
        node.succeed(claimed[1].claim.token).await;
        assert!(node.claim_with(&only).await.is_empty());
        assert_eq!(
            node.act(heads[1], JobAction::Requeue).await,
            ActionOutcome::Became(JobState::Pending)
        );
        node.succeed(claimed[0].claim.token).await;
        let claimed = ids(&node.claim_with(&only).await);
        assert_eq!(claimed.iter().collect::<BTreeSet<_>>(), heads.iter().collect());
    }
}
