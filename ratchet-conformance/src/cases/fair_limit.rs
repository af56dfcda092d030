//! Limits of fair keys: never more running jobs of a key than allowed, and no waiting job is
//! overlooked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratchet_core::store::FairStore;
use ratchet_core::time;

use super::prelude::*;

fn fair(node: &TestNode) -> &dyn FairStore {
    let fair = node.store.fair();
    fair.expect("the store should limit fair keys, because the case requires the power FairLimits")
}

fn queues(pattern: &str) -> FairScope {
    FairScope::queues(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"))
}

fn key(queue: &str, key: &str) -> FairScope {
    FairScope::key(queue, key).unwrap_or_else(|error| panic!("{queue} {key}: {error}"))
}

async fn set(node: &TestNode, scope: FairScope, max: u32) -> Changed {
    ok(fair(node).set_fair_limit(&scope, Some(max)).await)
}

async fn remove(node: &TestNode, scope: FairScope) -> Changed {
    ok(fair(node).set_fair_limit(&scope, None).await)
}

fn of(key: &str) -> NewJob {
    job().fair_key(key)
}

/// Returns this many jobs of a key.
fn flood(key: &str, count: usize) -> Vec<NewJob> {
    (0..count).map(|_| of(key)).collect()
}

/// Lets a claim give turns to waiting jobs that may have places, and take no job. Claims do this
/// whatever the kinds that they take.
async fn wake(node: &TestNode) {
    let other = node.request(10).kinds(Selection::Only(names(["other"])));
    assert_eq!(ids(&node.claim_with(&other).await), []);
}

/// Returns the number of running jobs of a key in a queue.
async fn running(node: &TestNode, queue: &str, key: &str) -> usize {
    let jobs = node.everything().await;
    let of_key = jobs.iter().filter(|job| {
        let spec = &job.spec;
        let name = spec.fair_key.as_ref().map(|key| key.name().as_str());
        job.state == JobState::Running && spec.route.queue.as_str() == queue && name == Some(key)
    });
    of_key.count()
}

cases! {
    "fair_limit" on Cx;

    #[proves("fair.limit.max", "fair.limit.free", "fair.limit.others")]
    #[needs(FairLimits)]
    async fn no_more_jobs_of_a_key_run_than_its_limit(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(set(&a, queues("default"), 2).await, Changed::Changed);
        let all = a.add_all(&flood("k", 5)).await;
        let others = a.add_all(&flood("l", 2)).await;
        let plain = a.add(job()).await;
        cx.proving(["fair.limit.max", "fair.limit.others"]);
        let claimed = b.claim(10).await;
        assert_eq!(ids(&claimed), [&all[..2], &others, &[plain]].concat());
        assert_eq!(a.claim_ids(10).await, []);
        let key = |id: JobId| {
            let claimed = claimed.iter().find(|job| job.claim.token.job == id);
            claimed.map(|job| job.claim.limited)
        };
        assert_eq!((key(all[0]), key(plain)), (Some(true), Some(false)));
        cx.proving(["fair.limit.free"]);
        a.succeed(claimed[1].claim.token).await;
        assert_eq!(b.claim_ids(10).await, all[2..3]);
        cx.proving(["fair.limit.max"]);
        assert_eq!(a.claim_ids(10).await, []);
        assert_eq!(running(&a, "default", "k").await, 2);
    }

    #[proves("fair.limit.free")]
    #[needs(FairLimits)]
    async fn every_end_of_a_claim_frees_its_place_at_once(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        set(&a, queues("default"), 1).await;
        let failed = Outcome::Failed { error: "it failed".to_owned() };
        let outcomes =
            [result("1"), retry(HOUR), failed, Outcome::Snoozed { delay: HOUR }, Outcome::Cancelled];
        let all = a.add_all(&flood("k", outcomes.len() + 4)).await;
        for (place, outcome) in outcomes.into_iter().enumerate() {
            let token = a.take().await;
            assert_eq!(token.job, all[place]);
            assert_eq!(b.claim_ids(10).await, [], "{outcome:?}");
            assert_eq!(a.settle(token, outcome).await, Fenced::Applied);
        }
        let token = a.take().await;
        a.act(token.job, JobAction::Cancel).await;
        assert_eq!(b.claim_ids(10).await, [], "the job still runs");
        a.succeed(token).await;
        // The node of a job that is cancelled dies, and then that of a job that starts again.
        let mut token = token;
        for cancelled in [true, false] {
            let lost = cx.node().await;
            lost.beat().await;
            token = lost.take().await;
            if cancelled {
                a.act(token.job, JobAction::Cancel).await;
            }
            assert_eq!(a.claim_ids(10).await, []);
            lost.die().await;
            assert_eq!(a.reclaim(&reclaim()).await.len(), 1);
        }
        let next = a.take().await;
        a.succeed(next).await;
        let last = a.take().await;
        let mut both = [next.job, last.job];
        both.sort();
        assert_eq!(both, [token.job, all[8]]);
    }

    #[proves("fair.limit.free", "fair.limit.wait")]
    #[needs(FairLimits)]
    async fn waiting_jobs_of_every_priority_get_places(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        for priority in Priority::ALL {
            let jobs = flood("k", 2).into_iter().map(|job| job.priority(priority));
            let jobs = node.add_all(&jobs.collect::<Vec<_>>()).await;
            for id in jobs {
                let token = node.take().await;
                assert_eq!(token.job, id, "{priority}");
                assert_eq!(node.claim_ids(10).await, []);
                node.succeed(token).await;
            }
        }
    }

    #[proves("fair.limit.change", "fair.limit.list")]
    #[needs(FairLimits)]
    async fn removing_a_limit_leaves_the_others(cx: &Cx) {
        let node = cx.node().await;
        let scopes = [queues("q"), key("q", "k"), key("q", "other"), queues("q*")];
        for scope in &scopes {
            set(&node, scope.clone(), 1).await;
        }
        for removed in [1, 0, 3] {
            assert_eq!(remove(&node, scopes[removed].clone()).await, Changed::Changed);
            assert_eq!(remove(&node, scopes[removed].clone()).await, Changed::Unchanged);
            let limits = ok(fair(&node).fair_limits().await);
            let left: Vec<FairScope> = limits.into_iter().map(|limit| limit.scope).collect();
            let expected: &[FairScope] = match removed {
                1 => &[scopes[0].clone(), scopes[2].clone(), scopes[3].clone()],
                0 => &scopes[2..],
                _ => &scopes[2..3],
            };
            assert_eq!(left, expected);
        }
    }

    #[proves("fair.limit.free")]
    #[needs(FairLimits)]
    async fn jobs_that_keep_coming_do_not_take_the_place_of_a_waiting_one(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let first = node.add_all(&flood("k", 2)).await;
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), first[..1]);
        // All slots are full now, so no claim parks the jobs that come.
        let late = node.add_all(&flood("k", 2)).await;
        node.succeed(claimed[0].claim.token).await;
        for next in [first[1], late[0], late[1]] {
            let token = node.take().await;
            assert_eq!(token.job, next);
            node.succeed(token).await;
        }
    }

    #[proves("fair.limit.others")]
    #[needs(FairLimits)]
    async fn a_key_at_its_limit_delays_no_other(cx: &Cx) {
        let node = cx.node().await;
        set(&node, key("default", "noisy"), 1).await;
        node.add_all(&flood("noisy", 200)).await;
        let quiet = node.add_all(&flood("quiet", 4)).await;
        let plain = node.add_all(&jobs(3)).await;
        let claimed = node.claim_ids(8).await;
        let others = [quiet, plain].concat();
        assert!(others.iter().all(|job| claimed.contains(job)), "{claimed:?}");
        assert_eq!(claimed.len(), 8);
        assert_eq!(node.claim_ids(8).await, []);
        let late = node.add(of("quiet")).await;
        assert_eq!(node.claim_ids(8).await, [late]);
    }

    #[proves("fair.limit.max", "fair.limit.list")]
    #[needs(FairLimits)]
    async fn the_most_specific_limit_applies(cx: &Cx) {
        let node = cx.node().await;
        for (scope, max) in [
            (queues("*"), 5),
            (queues("mail*"), 4),
            (queues("mail"), 3),
            (key("mail", "vip"), 6),
            (key("mail", "stopped"), 0),
        ] {
            assert_eq!(set(&node, scope.clone(), max).await, Changed::Changed);
            assert_eq!(set(&node, scope, max).await, Changed::Unchanged);
        }
        for (queue, key) in [
            ("mail", "vip"),
            ("mail", "stopped"),
            ("mail", "k"),
            ("mail2", "vip"),
            ("other", "k"),
        ] {
            let jobs = flood(key, 9).into_iter().map(|job| job.queue(queue));
            node.add_all(&jobs.collect::<Vec<_>>()).await;
        }
        node.claim(100).await;
        let mut counts = Vec::new();
        for (queue, key) in [
            ("mail", "vip"),
            ("mail", "stopped"),
            ("mail", "k"),
            ("mail2", "vip"),
            ("other", "k"),
        ] {
            counts.push(running(&node, queue, key).await);
        }
        assert_eq!(counts, [6, 0, 3, 4, 5]);
        cx.proving(["fair.limit.list"]);
        let listed = ok(fair(&node).fair_limits().await);
        let expected = [
            (queues("*"), 5),
            (queues("mail"), 3),
            (key("mail", "stopped"), 0),
            (key("mail", "vip"), 6),
            (queues("mail*"), 4),
        ];
        let expected = expected.map(|(scope, max)| FairLimit::new(scope, max));
        assert_eq!(listed, expected);
        assert_eq!(remove(&node, queues("*")).await, Changed::Changed);
        assert_eq!(remove(&node, queues("*")).await, Changed::Unchanged);
        assert_eq!(ok(fair(&node).fair_limits().await), expected[1..]);
    }

    #[proves("fair.limit.max", "fair.limit.change")]
    #[needs(FairLimits)]
    async fn jobs_that_were_claimed_before_a_limit_count(cx: &Cx) {
        let node = cx.node().await;
        let all = node.add_all(&flood("k", 6)).await;
        let claimed = node.claim(3).await;
        assert_eq!(ids(&claimed), all[..3]);
        set(&node, queues("default"), 2).await;
        for job in &claimed[..2] {
            assert_eq!(node.claim_ids(10).await, []);
            node.succeed(job.claim.token).await;
        }
        assert_eq!(node.claim_ids(10).await, all[3..4]);
        assert_eq!(node.claim_ids(10).await, []);
    }

    #[proves("fair.limit.change")]
    #[needs(FairLimits)]
    async fn a_changed_limit_applies_at_once(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let all = a.add_all(&flood("k", 9)).await;
        set(&a, queues("default"), 0).await;
        assert_eq!(b.claim_ids(10).await, []);
        set(&b, queues("default"), 1).await;
        assert_eq!(a.claim_ids(10).await, all[..1]);
        set(&a, key("default", "k"), 3).await;
        assert_eq!(b.claim_ids(10).await, all[1..3]);
        assert_eq!(b.claim_ids(10).await, []);
        set(&a, queues("default"), 9).await;
        assert_eq!(b.claim_ids(10).await, [], "the limit of the key applies");
        remove(&a, key("default", "k")).await;
        assert_eq!(b.claim_ids(2).await, all[3..5]);
        set(&a, queues("default"), 5).await;
        assert_eq!(b.claim_ids(10).await, []);
        remove(&b, queues("default")).await;
        assert_eq!(a.claim_ids(10).await, all[5..]);
    }

    #[proves("fair.limit.change")]
    #[needs(FairLimits)]
    async fn many_waiting_jobs_get_turns_by_several_claims(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 0).await;
        // The key with many jobs comes first in every order.
        // The first claim gives turns to 500 of them. Then one more waits than a claim wakes.
        let many = node.add_all(&flood("a", 1_501)).await;
        let few = node.add_all(&flood("b", 3)).await;
        for _ in 0..3 {
            assert_eq!(node.claim_ids(10).await, []);
        }
        set(&node, key("default", "a"), 5_000).await;
        remove(&node, queues("default")).await;
        let mut claimed = node.claim_ids(5_000).await;
        assert!(few.iter().all(|job| claimed.contains(job)), "no other key waits for key a");
        assert!(claimed.len() <= 1_000, "one claim gave turns to {} jobs", claimed.len());
        while claimed.len() < many.len() + few.len() {
            let more = node.claim_ids(5_000).await;
            assert!(!more.is_empty(), "{} of 1,504 jobs were claimed", claimed.len());
            claimed.extend(more);
        }
        claimed.retain(|job| !few.contains(job));
        assert_eq!(claimed, many, "they run in the order in which they became due");
    }

    #[proves("fair.limit.free")]
    #[needs(FairLimits)]
    async fn waiting_jobs_with_one_due_time_get_places_in_the_order_of_their_ids(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let due = time::from_millis(1_000_000_000_000);
        let weights = [1.0, 0.1, 100.0, 1.0];
        let jobs = weights.map(|weight| job().weighted_fair_key("k", weight).run_at(due));
        let jobs = node.add_all(&jobs).await;
        for id in jobs {
            let token = node.take().await;
            assert_eq!(token.job, id);
            assert_eq!(node.claim_ids(10).await, []);
            node.succeed(token).await;
        }
    }

    #[proves("fair.limit.free", "fair.limit.change")]
    #[needs(FairLimits)]
    async fn a_claim_that_takes_no_waiting_job_overlooks_none(cx: &Cx) {
        let node = cx.node().await;
        let only = |name: &str| Selection::Only(names([name]));
        let except = |name: &str| Selection::Except(names([name]));
        for request in [
            node.request(10).kinds(only("other")),
            node.request(10).kinds(except("kind")),
            node.request(10).queues(only("other")),
            node.request(10).queues(except("default")),
            node.request(10).untagged(false),
        ] {
            set(&node, queues("default"), 1).await;
            let jobs = node.add_all(&flood("k", 3)).await;
            let token = node.take().await;
            assert_eq!(node.claim_ids(10).await, []);
            node.succeed(token).await;
            assert_eq!(ids(&node.claim_with(&request).await), [], "{request:?}");
            let token = node.take().await;
            assert_eq!(token.job, jobs[1], "{request:?}");
            remove(&node, queues("default")).await;
            assert_eq!(ids(&node.claim_with(&request).await), [], "{request:?}");
            let last = node.take().await;
            assert_eq!(last.job, jobs[2], "{request:?}");
            for token in [token, last] {
                node.succeed(token).await;
            }
        }
    }

    #[proves("fair.limit.wait")]
    #[needs(FairLimits)]
    async fn another_job_gets_the_place_that_a_job_cannot_use(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let later = RunAt::In(HOUR);
        for (has_turn, actions) in [
            (true, vec![JobAction::Cancel]),
            (true, vec![JobAction::Pause]),
            (true, vec![JobAction::Reschedule(later)]),
            (true, vec![JobAction::Cancel, JobAction::Requeue, JobAction::Reschedule(later)]),
            (false, vec![JobAction::Cancel]),
        ] {
            let jobs = node.add_all(&flood("k", 4)).await;
            let token = node.take().await;
            assert_eq!(node.claim_ids(10).await, []);
            node.succeed(token).await;
            if has_turn {
                wake(&node).await;
            }
            for action in &actions {
                node.act(jobs[1], *action).await;
            }
            let next = node.take().await;
            assert_eq!(next.job, jobs[2], "{actions:?}");
            assert_eq!(node.claim_ids(10).await, []);
            // The jobs that wait may be changed too.
            node.act(jobs[3], actions[0]).await;
            node.succeed(next).await;
            assert_eq!(node.claim_ids(10).await, []);
        }
    }

    #[proves("fair.limit.wait", "expiry.pass")]
    #[needs(FairLimits, Clock)]
    async fn another_job_gets_the_place_of_a_job_that_expired(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let jobs = [of("k"), of("k").expires_in(MINUTE), of("k")];
        let jobs = node.add_all(&jobs).await;
        let token = node.take().await;
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(token).await;
        wake(&node).await;
        cx.advance(MINUTE).await;
        assert_eq!(node.expire_jobs(10).await, [jobs[1]]);
        assert_eq!(node.claim_ids(10).await, [jobs[2]]);
    }

    #[proves("fair.limit.wait")]
    #[needs(FairLimits, Vandal)]
    async fn another_job_gets_the_place_of_a_job_that_cannot_be_read(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let jobs = node.add_all(&flood("k", 4)).await;
        let token = node.take().await;
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(token).await;
        wake(&node).await;
        // One of the two has a turn, and the other waits.
        for job in &jobs[1..3] {
            if let Err(error) = cx.vandal().spoil(*job).await {
                panic!("the fixture should spoil a job: {error}");
            }
        }
        let mut claimed = Vec::new();
        for _ in 0..4 {
            claimed.extend(node.claim_ids(10).await);
        }
        assert_eq!(claimed, jobs[3..]);
    }

    #[proves("fair.limit.wait")]
    #[needs(FairLimits, Workflows)]
    async fn another_job_gets_the_place_of_a_job_that_was_debounced(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let jobs = [of("k"), of("k").unique_key("u"), of("k")];
        let jobs = node.add_all(&jobs).await;
        let token = node.take().await;
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(token).await;
        wake(&node).await;
        let debounce = OnConflict::Debounce { max_delay: DAY };
        let later = of("k").unique_key("u").delay(HOUR).on_conflict(debounce);
        let offered = node.offer(&later).await;
        assert_eq!(offered.id(), jobs[1]);
        let next = node.take().await;
        assert_eq!(next.job, jobs[2]);
        node.succeed(next).await;
        assert_eq!(node.claim_ids(10).await, []);
    }

    #[proves("fair.limit.wait")]
    #[needs(FairLimits, Clock)]
    async fn a_waiting_job_that_was_changed_is_not_overlooked(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let jobs = node.add_all(&flood("k", 4)).await;
        let token = node.take().await;
        assert_eq!(node.claim_ids(10).await, []);
        node.act(jobs[1], JobAction::Pause).await;
        node.act(jobs[1], JobAction::Resume).await;
        node.act(jobs[2], JobAction::Reschedule(RunAt::In(MINUTE))).await;
        node.act(jobs[3], JobAction::SetPriority(Priority::High)).await;
        assert_eq!(node.claim_ids(10).await, []);
        cx.advance(MINUTE).await;
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(token).await;
        for job in [jobs[3], jobs[1], jobs[2]] {
            let next = node.take().await;
            assert_eq!(next.job, job);
            assert_eq!(node.claim_ids(10).await, []);
            node.succeed(next).await;
        }
    }

    #[proves("fair.limit.free")]
    #[needs(FairLimits, Clock)]
    async fn priorities_decide_which_waiting_job_gets_a_place(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let low = node.add(of("k").priority(Priority::Low)).await;
        let token = node.take().await;
        assert_eq!(token.job, low);
        let normal = node.add(of("k")).await;
        let waits = node.add(of("k").priority(Priority::Low)).await;
        let high = node.add(of("k").priority(Priority::High)).await;
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(token).await;
        for job in [high, normal] {
            let token = node.take().await;
            assert_eq!(token.job, job);
            assert_eq!(node.claim_ids(10).await, []);
            if job == normal {
                // By aging, the job that has waited goes ahead of a new one of higher priority.
                cx.advance(MINUTE * 10).await;
                node.add(of("k").priority(Priority::High)).await;
            }
            node.succeed(token).await;
        }
        let aged = node.request(1).aging(Aging::every(MINUTE));
        let next = node.claim_with(&aged).await;
        assert_eq!(ids(&next), [waits]);
    }

    #[proves("fair.limit.free", "fair.limit.max")]
    #[needs(FairLimits)]
    async fn a_kind_that_no_node_runs_keeps_no_place(cx: &Cx) {
        let node = cx.node().await;
        set(&node, queues("default"), 1).await;
        let of_kind = |kind: &str| NewJob::new(kind, &1).fair_key("k");
        node.add(of_kind("ours")).await;
        node.add_all(&[of_kind("theirs"), of_kind("theirs")]).await;
        let ours = node.add(of_kind("ours")).await;
        let only = || node.request(5).kinds(Selection::Only(names(["ours"])));
        let first = node.claim_with(&only()).await;
        assert_eq!(first.len(), 1);
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(first[0].claim.token).await;
        assert_eq!(ids(&node.claim_with(&only()).await), [ours]);
        cx.proving(["fair.limit.max"]);
        assert_eq!(node.claim_ids(10).await, []);
    }

    #[proves("fair.limit.max")]
    #[needs(FairLimits, Permits)]
    async fn a_job_needs_a_permit_and_a_place(cx: &Cx) {
        let node = cx.node().await;
        let permits = node.store.permits();
        let permits = permits.expect("the case needs the power Permits");
        ok(permits.set_permits(&name("api"), 2, IfKnown::Change).await);
        set(&node, queues("default"), 1).await;
        let needing = |key: &str| of(key).permit("api");
        let jobs = ["a", "a", "b", "c", "a"].map(needing);
        let jobs = node.add_all(&jobs).await;
        let claimed = node.claim(10).await;
        assert_eq!(ids(&claimed), [jobs[0], jobs[2]]);
        assert_eq!(node.claim_ids(10).await, []);
        node.succeed(claimed[0].claim.token).await;
        let next = node.claim(10).await;
        assert_eq!(next.len(), 1);
        node.succeed(claimed[1].claim.token).await;
        let last = node.claim(10).await;
        let mut both = [ids(&next), ids(&last)].concat();
        both.sort();
        assert_eq!(both, [jobs[1], jobs[3]]);
    }

    #[proves("fair.limit.max", "fair.limit.free")]
    #[needs(FairLimits)]
    async fn racers_never_exceed_a_limit_and_overlook_no_job(cx: &Cx) {
        let nodes = cx.nodes(3).await;
        set(&nodes[0], queues("default"), 2).await;
        let keys = ["a", "b", "c"];
        for key in keys {
            let kind = |number| if number % 2 == 0 { "one" } else { "two" };
            let jobs = (0..20).map(|number| NewJob::new(kind(number), &number).fair_key(key));
            let jobs: Vec<NewJob> = jobs.collect();
            nodes[0].add_all(&jobs).await;
        }
        let counts: Arc<[AtomicUsize; 3]> = Arc::default();
        let done = race(6, |racer| {
            let (node, counts) = (nodes[racer % 3].sibling(), Arc::clone(&counts));
            async move {
                let (mut done, mut idle) = (0, 0);
                while idle < 5 {
                    let claimed = node.claim(3).await;
                    idle = if claimed.is_empty() { idle + 1 } else { 0 };
                    let mut places = Vec::new();
                    for job in &claimed {
                        let key = node.get(job.claim.token.job).await.spec.fair_key;
                        let name = key.as_ref().map(|key| key.name().as_str());
                        let place = keys.iter().position(|key| Some(*key) == name);
                        let place = place.unwrap_or_default();
                        let running = counts[place].fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(running <= 2, "{running} jobs of one key run");
                        places.push(place);
                    }
                    done += claimed.len();
                    for (job, place) in claimed.iter().zip(places) {
                        let running = running(&node, "default", keys[place]).await;
                        assert!(running <= 2, "{running} jobs of one key run");
                        counts[place].fetch_sub(1, Ordering::SeqCst);
                        node.succeed(job.claim.token).await;
                    }
                }
                done
            }
        })
        .await;
        assert_eq!(done.iter().sum::<usize>(), 60);
    }
}
