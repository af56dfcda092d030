//! Permits: never more holders than allowed, freed at once, granted in claim order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratchet_core::store::PermitStore;

use super::prelude::*;

fn permits_of(node: &TestNode) -> &dyn PermitStore {
    let permits = node.store.permits();
    permits.expect("the store should support permits, because the case requires the power Permits")
}

async fn set(node: &TestNode, resource: &str, max: u32) -> Changed {
    ok(permits_of(node)
        .set_permits(&name(resource), max, IfKnown::Change)
        .await)
}

async fn declare(node: &TestNode, resource: &str, max: u32) -> Changed {
    ok(permits_of(node)
        .set_permits(&name(resource), max, IfKnown::Keep)
        .await)
}

/// Returns each resource as its name, its maximum number of permits, and the number of permits in
/// use.
async fn listed(node: &TestNode) -> Vec<(String, u32, u64)> {
    let listed = ok(permits_of(node).permits().await);
    let row = |info: PermitInfo| (info.resource.as_str().to_owned(), info.max, info.held);
    listed.into_iter().map(row).collect()
}

/// Returns the number of jobs that hold a permit of `resource`.
async fn held(node: &TestNode, resource: &str) -> u64 {
    let listed = listed(node).await;
    let found = listed.iter().find(|(name, _, _)| name == resource);
    found.map_or(0, |(_, _, held)| *held)
}

/// Returns `count` new jobs, each of which needs a permit of `resource`.
fn needing(resource: &str, count: usize) -> Vec<NewJob> {
    jobs(count)
        .into_iter()
        .map(|job| job.permit(resource))
        .collect()
}

fn failed() -> Outcome {
    let error = "it failed".to_owned();
    Outcome::Failed { error }
}

cases! {
    "permit" on Cx;

    #[proves("permit.max", "permit.free", "permit.order")]
    #[needs(Permits)]
    async fn no_more_jobs_run_than_there_are_permits(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(set(&a, "api", 2).await, Changed::Changed);
        let all = a.add_all(&needing("api", 5)).await;
        cx.proving(["permit.max", "permit.order"]);
        let claimed = b.claim(10).await;
        assert_eq!(ids(&claimed), all[..2]);
        assert_eq!(a.claim_ids(10).await, []);
        cx.proving(["permit.free", "permit.order"]);
        a.succeed(claimed[1].claim.token).await;
        let next = a.claim(10).await;
        assert_eq!(ids(&next), all[2..3]);
        cx.proving(["permit.max"]);
        assert_eq!(b.claim_ids(10).await, []);
        cx.proving(["permit.free", "permit.order"]);
        b.succeed(claimed[0].claim.token).await;
        b.succeed(next[0].claim.token).await;
        assert_eq!(b.claim_ids(10).await, all[3..]);
    }

    #[proves("permit.free")]
    #[needs(Permits)]
    async fn every_end_of_a_claim_frees_its_permit_at_once(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        set(&a, "api", 1).await;
        let outcomes = [
            result("1"),
            retry(HOUR),
            failed(),
            Outcome::Snoozed { delay: HOUR },
            Outcome::Cancelled,
        ];
        a.add_all(&needing("api", outcomes.len() + 2)).await;
        for outcome in outcomes {
            let token = a.take().await;
            assert_eq!(b.claim_ids(10).await, [], "{outcome:?}");
            assert_eq!(a.settle(token, outcome).await, Fenced::Applied);
            assert_eq!(held(&b, "api").await, 0);
        }
        // A job with a cancel request keeps its permit until it ends; a released job frees its
        // permit.
        let token = a.take().await;
        a.act(token.job, JobAction::Cancel).await;
        assert_eq!(b.claim_ids(10).await, [], "expected no claim while the job with the permit still runs");
        a.succeed(token).await;
        let token = a.take().await;
        a.release(token).await;
        assert_eq!(b.claim_ids(10).await, [token.job]);
    }

    #[proves("permit.free", "permit.max")]
    #[needs(Permits)]
    async fn settling_twice_frees_one_permit(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 1).await;
        let all = node.add_all(&needing("api", 3)).await;
        let first = node.take().await;
        node.succeed(first).await;
        let second = node.take().await;
        for _ in 0..3 {
            node.succeed(first).await;
            let stale = node.token(second.job, second.seq + 1).await;
            assert_eq!(node.settle(stale, Outcome::Released).await, Fenced::Stale);
            assert_eq!(node.claim_ids(10).await, []);
        }
        node.succeed(second).await;
        assert_eq!(node.claim_ids(10).await, all[2..]);
    }

    #[proves("permit.free", "permit.max")]
    #[needs(Permits, Clock)]
    async fn permits_of_a_killed_node_are_free_once_its_claims_are_taken_back(cx: &Cx) {
        let (killed, other) = (cx.node().await, cx.node().await);
        set(&other, "api", 2).await;
        let all = other.add_all(&needing("api", 3)).await;
        killed.beat().await;
        let held_by_killed = killed.claim(10).await;
        killed.alive(held_by_killed[0].claim.token).await;
        cx.advance(MINUTE).await;
        other.beat().await;
        assert_eq!(other.claim_ids(10).await, [], "expected no claim before the killed node's claims are reclaimed");
        assert_eq!(other.reclaim(&reclaim()).await.len(), 2);
        let claimed = other.claim(10).await;
        assert_eq!(ids(&claimed), all[..2]);
        // Later calls of the killed node release no permit.
        for job in held_by_killed {
            let late = killed.settle(job.claim.token, Outcome::Released).await;
            assert_eq!(late, Fenced::Stale);
        }
        assert_eq!(other.reclaim(&reclaim()).await, []);
        assert_eq!(other.claim_ids(10).await, []);
        other.succeed(claimed[0].claim.token).await;
        assert_eq!(other.claim_ids(10).await, all[2..]);
    }

    #[proves("permit.max")]
    #[needs(Permits, Clock)]
    async fn one_permit_is_not_given_twice_for_a_gap_in_the_heartbeats(cx: &Cx) {
        let (slow, other) = (cx.node().await, cx.node().await);
        set(&other, "api", 1).await;
        other.add_all(&needing("api", 2)).await;
        slow.beat().await;
        let token = slow.take().await;
        slow.alive(token).await;
        for _ in 0..4 {
            cx.advance(14 * SECOND).await;
            other.beat().await;
            assert_eq!(other.reclaim(&reclaim()).await, []);
            assert_eq!(other.claim_ids(10).await, []);
            slow.beat().await;
        }
        slow.succeed(token).await;
        assert_eq!(other.claim(10).await.len(), 1);
    }

    #[proves("permit.free", "permit.max")]
    #[needs(Permits, Clock)]
    async fn a_job_beyond_its_crash_budget_holds_its_permit_until_it_is_settled(cx: &Cx) {
        let (killed, other) = (cx.node().await, cx.node().await);
        set(&other, "api", 1).await;
        let all = other.add_all(&needing("api", 2)).await;
        killed.beat().await;
        let token = killed.take().await;
        killed.alive(token).await;
        cx.advance(MINUTE).await;
        other.beat().await;
        let lost = other.reclaim(&reclaim().max_crashes(0)).await;
        assert!(lost[0].exhausted, "{lost:?}");
        assert_eq!(other.claim_ids(10).await, []);
        assert_eq!(held(&other, "api").await, 1);
        other.fail(lost[0].token).await;
        assert_eq!(other.claim_ids(10).await, all[1..]);
    }

    #[proves("permit.order")]
    #[needs(Permits, Clock)]
    async fn permits_go_to_the_first_in_claim_order(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 2).await;
        let now = node.now().await;
        let at = |minutes: u32| job().permit("api").run_at(now - minutes * MINUTE);
        let aged = node.add(at(80).priority(Priority::Lowest)).await;
        let high = node.add(at(0).priority(Priority::High).queue("q")).await;
        let normal = node.add(at(1)).await;
        let later = node.add(at(0)).await;
        let critical = node.add(at(0).priority(Priority::Critical).queue("r")).await;
        // By waiting for 80 minutes, `aged` has risen five levels, from `Lowest` to a level above
        // `Critical`.
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), [aged, critical]);
        node.succeed(claimed[0].claim.token).await;
        assert_eq!(node.claim_ids(10).await, [high]);
        node.succeed(claimed[1].claim.token).await;
        assert_eq!(node.claim_ids(10).await, [normal]);
        assert_eq!(node.state(later).await, JobState::Pending);
    }

    #[proves("permit.order", "claim.limit")]
    #[needs(Permits)]
    async fn a_used_up_resource_blocks_no_other_job(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 1).await;
        set(&node, "gpu", 2).await;
        set(&node, "none", 0).await;
        let mut batch = Vec::new();
        for _ in 0..20 {
            batch.push(job().permit("none").priority(Priority::Critical));
            batch.push(job().permit("api").priority(Priority::High).queue("q"));
            batch.push(job().permit("api").priority(Priority::High));
            batch.push(job().permit("gpu").priority(Priority::High));
        }
        let waiting = node.add_all(&batch).await;
        let free = node.add_all(&jobs(10)).await;
        let expected = [&[waiting[1], waiting[3], waiting[7]], &free[..5]].concat();
        assert_eq!(node.claim_ids(8).await, expected);
        assert_eq!(node.claim_ids(3).await, free[5..8]);
        assert_eq!(node.claim_ids(8).await, free[8..]);
        assert_eq!(node.claim_ids(8).await, []);
    }

    #[proves("permit.max", "permit.order")]
    #[needs(Permits)]
    async fn one_resource_is_shared_by_queues_kinds_and_capabilities(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        set(&a, "api", 2).await;
        let first = a.add(NewJob::new("a", &1).queue("q").permit("api")).await;
        let second = a.add(NewJob::new("b", &1).capability("gpu").permit("api")).await;
        let third = a.add(NewJob::new("c", &1).permit("api")).await;
        let gpu = b.request(10).capabilities([name("gpu")]).untagged(false);
        let claimed = b.claim_with(&gpu).await;
        assert_eq!(ids(&claimed), [second]);
        // All holders count, including those of kinds that this node does not claim.
        let only_c = a.request(10).kinds(Selection::Only(names(["c"]).clone()));
        let taken = a.claim_with(&only_c).await;
        assert_eq!(ids(&taken), [third]);
        assert_eq!(a.claim_ids(10).await, []);
        b.succeed(claimed[0].claim.token).await;
        assert_eq!(a.claim_ids(10).await, [first]);
        assert_eq!(held(&b, "api").await, 2);
    }

    #[proves("permit.max")]
    #[needs(Permits)]
    async fn lean_claims_go_by_the_permits_too(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 1).await;
        let all = node.add_all(&needing("api", 2)).await;
        let lean = node.claim_lean(&node.request(10)).await;
        assert_eq!(lean.len(), 1);
        assert_eq!(lean[0].token.job, all[0]);
        assert_eq!(node.claim_lean(&node.request(10)).await, []);
    }

    #[proves("permit.unknown")]
    #[needs(Permits, IdempotencyKeys)]
    async fn a_permit_of_an_unknown_resource_is_refused_and_nothing_is_stored(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        set(&a, "api", 1).await;
        let batch = [job(), job().permit("api"), job().permit("Api").idempotency_key("k")];
        assert_refused(a.jobs().enqueue(&batch).await, "permit");
        assert_eq!(a.everything().await, []);
        // The refused batch has not used up its idempotency key, and its jobs can be enqueued
        // again.
        set(&b, "Api", 1).await;
        let created = batch.iter().map(|job| Enqueued::Created(job.id()));
        assert_eq!(a.enqueue(&batch).await, created.collect::<Vec<_>>());
        let again = batch[2].another().permit("other");
        assert_refused(b.jobs().enqueue(&[again]).await, "permit");
        assert_refused(b.jobs().enqueue(&[job().permit("")]).await, "permit");
        assert_eq!(b.everything().await.len(), 3);
    }

    #[proves("recurring.permit", "permit.unknown")]
    #[needs(Permits, Recurring)]
    async fn a_recurring_definition_cannot_need_a_permit_that_was_never_set(cx: &Cx) {
        let node = cx.node().await;
        let recurring = node.store.recurring().expect("the store should support recurring definitions, because the suite was given the power Recurring");
        let definition = || {
            let job = job().permit("api");
            put(Recurring::every(Duration::from_secs(60)).job(job).named("d"))
        };
        assert_refused(recurring.put(&definition()).await, "permit");
        assert_eq!(ok(recurring.find(&name("d")).await), None);
        set(&node, "api", 1).await;
        assert_eq!(ok(recurring.put(&definition()).await), PutOutcome::Created);
    }

    #[proves("permit.change", "permit.list")]
    #[needs(Permits)]
    async fn a_resource_can_get_more_permits_and_fewer(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(listed(&a).await, []);
        assert_eq!(set(&a, "api", 3).await, Changed::Changed);
        assert_eq!(set(&b, "api", 3).await, Changed::Unchanged);
        let all = a.add_all(&needing("api", 8)).await;
        let claimed = a.claim(10).await;
        assert_eq!(ids(&claimed), all[..3]);
        assert_eq!(set(&b, "api", 1).await, Changed::Changed);
        assert_eq!(listed(&a).await, [("api".to_owned(), 1, 3)]);
        // The three running jobs continue. No other job is claimed until all three have ended.
        for job in &claimed {
            assert_eq!(a.claim_ids(10).await, []);
            a.alive(job.claim.token).await;
            a.succeed(job.claim.token).await;
        }
        assert_eq!(a.claim_ids(10).await, all[3..4]);
        set(&a, "api", 4).await;
        assert_eq!(b.claim_ids(2).await, all[4..6]);
        assert_eq!(b.claim_ids(2).await, all[6..7]);
        set(&b, "api", 0).await;
        a.succeed(a.token(all[3], 1).await).await;
        assert_eq!(a.claim_ids(10).await, []);
        assert_eq!(listed(&b).await, [("api".to_owned(), 0, 3)]);
        set(&b, "api", u32::MAX).await;
        assert_eq!(b.claim_ids(10).await, all[7..]);
    }

    #[proves("claim.limit", "permit.order")]
    #[needs(Permits)]
    async fn a_claim_that_looks_further_for_want_of_permits_keeps_its_limit(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        set(&a, "api", 1).await;
        let bounded = a.add_all(&needing("api", 3)).await;
        let free = a.add_all(&jobs(5)).await;
        assert_eq!(b.claim_ids(2).await, [bounded[0], free[0]]);
        assert_eq!(a.claim_ids(2).await, free[1..3]);
    }

    #[proves("permit.max")]
    #[needs(Permits)]
    async fn a_job_for_which_there_was_no_permit_was_not_claimed(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 1).await;
        // The jobs are in separate queues, so that the permit is free for each of them when the
        // store searches for candidates.
        let first = node.add(job().permit("api")).await;
        let second = node.add(job().queue("other").permit("api")).await;
        let claimed = node.claim(2).await;
        assert_eq!(ids(&claimed), [first]);
        node.succeed(claimed[0].claim.token).await;
        let token = node.take().await;
        assert_eq!((token.job, token.seq), (second, 1));
    }

    #[proves("permit.declare", "permit.list")]
    #[needs(Permits)]
    async fn a_resource_that_is_known_keeps_its_number_when_it_is_declared(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(declare(&a, "api", 2).await, Changed::Changed);
        assert_eq!(declare(&b, "api", 5).await, Changed::Unchanged);
        cx.proving(["permit.list"]);
        assert_eq!(listed(&a).await, [("api".to_owned(), 2, 0)]);
        cx.proving(["permit.declare"]);
        set(&a, "api", 0).await;
        assert_eq!(declare(&b, "api", 2).await, Changed::Unchanged);
        assert_eq!(listed(&b).await, [("api".to_owned(), 0, 0)]);
    }

    #[proves("permit.list")]
    #[needs(Permits)]
    async fn resources_are_listed_once_by_name(cx: &Cx) {
        let node = cx.node().await;
        for resource in ["b", "ä", "a", "B", "a"] {
            set(&node, resource, 1).await;
        }
        node.add_all(&[job().permit("b"), job().permit("B"), job().permit("b")]).await;
        node.claim(10).await;
        let row = |resource: &str, held| (resource.to_owned(), 1, held);
        let expected = [row("B", 1), row("a", 0), row("b", 1), row("ä", 0)];
        assert_eq!(listed(&node).await, expected);
        drop(node);
        assert_eq!(listed(&cx.node().await).await, expected);
    }

    #[proves("permit.max", "get.whole")]
    #[needs(Permits)]
    async fn a_job_and_its_claim_show_the_permit(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "Größe", 9).await;
        let id = node.add(job().permit("Größe")).await;
        let plain = node.add(job()).await;
        let permit = Some(name("Größe"));
        assert_eq!(node.get(id).await.spec.route.permit, permit);
        assert_eq!(node.get(plain).await.spec.route.permit, None);
        let claimed = node.claim(10).await;
        assert_eq!(claimed[0].claim.route.permit, permit);
        assert_eq!(claimed[1].claim.route.permit, None);
    }

    #[proves("permit.free", "permit.order")]
    #[needs(Permits, Lanes)]
    async fn jobs_that_cannot_be_claimed_hold_no_permit(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 1).await;
        let in_queue = node.add(job().permit("api").queue("q")).await;
        node.pause_queue("q").await;
        let paused = node.add(job().permit("api")).await;
        node.act(paused, JobAction::Pause).await;
        node.add(job().permit("api").delay(HOUR)).await;
        let head = node.add(job().permit("api").lane("l")).await;
        let behind = node.add(job().permit("api").lane("l")).await;
        let token = node.take().await;
        assert_eq!(token.job, head);
        node.resume_queue("q").await;
        node.act(paused, JobAction::Resume).await;
        assert_eq!(node.claim_ids(10).await, []);
        // When the head of a lane ends, the next job of the lane does not inherit the head's
        // permit.
        node.succeed(token).await;
        let token = node.take().await;
        assert_eq!(token.job, in_queue);
        node.succeed(token).await;
        let token = node.take().await;
        assert_eq!(token.job, paused);
        node.succeed(token).await;
        assert_eq!(node.claim_ids(10).await, [behind]);
    }

    #[proves("enqueue.refusals", "permit.unknown", "link.missing", "batch.join")]
    #[needs(Permits, Workflows)]
    async fn of_several_reasons_to_refuse_an_enqueue_the_permit_is_named_first(cx: &Cx) {
        let node = cx.node().await;
        let closed = node.batch().await;
        node.close(closed).await;
        let needs = job().permit("unknown");
        let orphan = job().after(JobId::new(), Condition::Ended);
        let late = job().in_batch(closed);
        let mut batch = vec![late, orphan, needs];
        for field in ["permit", "parent", "batch"] {
            assert_refused(node.jobs().enqueue(&batch).await, field);
            batch.pop();
        }
        assert_eq!(node.everything().await, []);
    }

    #[proves("permit.order", "errors.poison")]
    #[needs(Permits, Vandal)]
    async fn jobs_that_cannot_be_read_use_up_no_permit(cx: &Cx) {
        let node = cx.node().await;
        set(&node, "api", 1).await;
        let all = node.add_all(&needing("api", 5)).await;
        for id in &all[..3] {
            ok_or_die(cx.vandal().spoil(*id).await);
        }
        assert_eq!(node.claim_ids(10).await, all[3..4]);
        assert_eq!(node.claim_ids(10).await, []);
        assert_eq!(held(&node, "api").await, 1);
    }

    #[proves("permit.max")]
    #[needs(Permits)]
    async fn of_many_claimers_at_once_as_many_jobs_are_had_as_there_are_permits(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for round in 0..10 {
            let resource = format!("r{round}");
            set(&nodes[0], &resource, 3).await;
            nodes[0].add_all(&needing(&resource, 20)).await;
            nodes[0].add_all(&jobs(8)).await;
            let had = race(8, |racer| {
                let node = nodes[racer % 4].sibling();
                async move { node.claim(4).await }
            })
            .await;
            let had = had.iter().flatten();
            let holders = had.clone().filter(|job| job.claim.route.permit.is_some());
            assert_eq!(holders.count(), 3, "round {round}");
            assert_eq!(had.count(), 11, "round {round}");
        }
    }

    #[proves("permit.max", "permit.free", "claim.exclusive")]
    #[needs(Permits)]
    async fn many_claimers_never_hold_more_than_there_are(cx: &Cx) {
        const MAX: usize = 3;
        let nodes = cx.nodes(4).await;
        set(&nodes[0], "api", 3).await;
        let mut batch = needing("api", 60);
        batch.extend(needing("api", 60).into_iter().map(|job| job.queue("q")));
        batch.extend(jobs(60));
        let mut all = nodes[0].add_all(&batch).await;
        let holders = Arc::new(AtomicUsize::new(0));
        let ran = race(8, |racer| {
            let (node, holders) = (nodes[racer % 4].sibling(), Arc::clone(&holders));
            async move {
                let mut ran = Vec::new();
                // Other racers may hold all permits for a moment, so the racer stops only when all
                // jobs have ended.
                while held_or_waiting(&node).await {
                    let claimed = node.claim(1 + racer).await;
                    let own = claimed.iter().filter(|job| job.claim.route.permit.is_some());
                    let own = own.count();
                    let now = holders.fetch_add(own, Ordering::SeqCst) + own;
                    assert!(now <= MAX, "{now} jobs hold permits; the limit is {MAX}");
                    let held = held(&node, "api").await;
                    assert!(held <= MAX as u64, "{held} permits are stored as held; the limit is {MAX}");
                    // Subtracts the jobs before their claims end. Otherwise another racer could
                    // claim a permit that was just freed, while this racer still counts as its
                    // holder.
                    holders.fetch_sub(own, Ordering::SeqCst);
                    if claimed.is_empty() {
                        tokio::task::yield_now().await;
                    }
                    for job in claimed {
                        node.succeed(job.claim.token).await;
                        ran.push(job.claim.token.job);
                    }
                }
                ran
            }
        })
        .await;
        let mut ran: Vec<JobId> = ran.into_iter().flatten().collect();
        ran.sort();
        all.sort();
        assert_eq!(ran, all);
    }

    #[proves("permit.max", "permit.free", "reclaim.once")]
    #[needs(Permits)]
    async fn nodes_that_die_holding_permits_neither_lose_nor_double_them(cx: &Cx) {
        const MAX: usize = 2;
        let nodes = cx.nodes(4).await;
        set(&nodes[0], "api", 2).await;
        let all = nodes[0].add_all(&needing("api", 40)).await;
        let holders = Arc::new(AtomicUsize::new(0));
        race(8, |racer| {
            let (node, holders) = (nodes[racer % 4].clone(), Arc::clone(&holders));
            async move {
                let mut round = racer;
                while held_or_waiting(&node).await {
                    round += 1;
                    tokio::task::yield_now().await;
                    if racer == 0 {
                        node.reclaim(&reclaim().max_crashes(u32::MAX)).await;
                        continue;
                    }
                    let one = node.sibling();
                    one.beat().await;
                    let claimed = one.claim(2).await;
                    let now = holders.fetch_add(claimed.len(), Ordering::SeqCst) + claimed.len();
                    assert!(now <= MAX, "{now} jobs hold permits; the limit is {MAX}");
                    holders.fetch_sub(claimed.len(), Ordering::SeqCst);
                    // In two of three rounds, the node settles its claims before it dies. In the
                    // third round, it dies while its claims still hold permits.
                    if round % 3 != 0 {
                        for job in claimed {
                            one.succeed(job.claim.token).await;
                        }
                    }
                    one.die().await;
                }
            }
        })
        .await;
        let node = &nodes[0];
        for id in all {
            assert_eq!(node.state(id).await, JobState::Succeeded);
        }
        assert_eq!(listed(node).await, [("api".to_owned(), 2, 0)]);
    }

    #[proves("permit.change", "permit.max")]
    #[needs(Permits)]
    async fn no_job_is_admitted_once_a_change_to_zero_has_returned(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for round in 0..10 {
            let resource = format!("r{round}");
            set(&nodes[0], &resource, 1_000).await;
            nodes[0].add_all(&needing(&resource, 50)).await;
            let ran = race(5, |racer| {
                let (node, resource) = (nodes[racer % 4].sibling(), resource.clone());
                async move {
                    if racer > 0 {
                        return node.claim_ids(9).await;
                    }
                    set(&node, &resource, 0).await;
                    let before = held(&node, &resource).await;
                    assert_eq!(node.claim_ids(9).await, []);
                    assert_eq!(held(&node, &resource).await, before);
                    Vec::new()
                }
            })
            .await;
            let ran: BTreeSet<JobId> = ran.into_iter().flatten().collect();
            assert_eq!(held(&nodes[0], &resource).await, ran.len() as u64);
        }
    }

    #[proves("permit.unknown", "keys.idempotency", "keys.unique")]
    #[needs(Permits, IdempotencyKeys)]
    async fn an_unknown_permit_is_refused_even_if_its_job_is_a_duplicate(cx: &Cx) {
        let node = cx.node().await;
        node.add_all(&[job().idempotency_key("i"), job().unique_key("u")]).await;
        for keyed in [job().idempotency_key("i"), job().unique_key("u")] {
            let batch = [job(), keyed.permit("api")];
            assert_refused(node.jobs().enqueue(&batch).await, "permit");
            assert_eq!(node.everything().await.len(), 2);
        }
        set(&node, "api", 1).await;
        let again = job().idempotency_key("i").permit("api");
        assert!(matches!(node.offer(&again).await, Enqueued::Duplicate(_)));
    }
}

/// Returns whether any job is unfinished.
async fn held_or_waiting(node: &TestNode) -> bool {
    let queues = node.queues().await;
    let mut counts = queues.iter().flat_map(|info| &info.counts);
    counts.any(|(state, count)| !state.is_terminal() && *count > 0)
}

fn ok_or_die(spoiled: Result<(), crate::BoxError>) {
    if let Err(error) = spoiled {
        panic!("the fixture could not damage the job: {error}");
    }
}
