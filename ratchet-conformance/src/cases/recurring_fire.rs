//! Recurring definitions: which node claims a slot, and what a firing creates.

use std::collections::BTreeSet;

use ratchet_core::model::RecurringOrigin;
use ratchet_core::schedule::{MAX_CATCH_UP, Misfire, Overlap};

use super::prelude::*;

fn claimed_names(due: &DueRecurring) -> Vec<&str> {
    let names = due.definitions.iter().map(|one| one.definition.name());
    names.map(Name::as_str).collect()
}

/// Returns the slots (scheduled times) of all stored jobs that recurring definitions created.
async fn slots(node: &TestNode) -> Vec<time::Timestamp> {
    let jobs = node.everything().await;
    jobs.iter()
        .filter_map(|job| job.spec.recurring.as_ref()?.slot)
        .collect()
}

/// Checks that the store rejects `firing` as stale, creates no job, and does not change the
/// definition.
async fn assert_nothing(node: &TestNode, firing: &RecurringFiring) {
    let before = ok(node.recurring().find(&firing.token.name).await);
    assert_eq!(node.fire(firing).await, Fired::Stale);
    assert_eq!(ok(node.recurring().find(&firing.token.name).await), before);
    assert_eq!(node.everything().await, []);
}

cases! {
    "recurring_fire" on Cx;

    #[proves("recurring.due", "recurring.hint", "recurring.clock")]
    #[needs(Clock, Recurring)]
    async fn a_definition_is_due_from_the_millisecond_of_its_slot(cx: &Cx) {
        let node = cx.node().await;
        cx.proving(["recurring.hint"]);
        assert_eq!(node.claim_due(1).await.next_in, None);
        node.define(minutely().named("n")).await;
        cx.proving(["recurring.due", "recurring.hint"]);
        cx.advance(MINUTE - 140 * MILLI).await;
        // If a caller's timer fires too early, no definition is due, and the reply has the time to
        // the next slot.
        let early = node.claim_due(1).await;
        assert_eq!((early.definitions, early.next_in), (vec![], Some(140 * MILLI)));
        cx.advance(139 * MILLI).await;
        let early = node.claim_due(1).await;
        assert_eq!((early.definitions, early.next_in), (vec![], Some(MILLI)));
        cx.advance(MILLI).await;
        let due = node.claim_due(1).await;
        cx.proving(["recurring.clock"]);
        assert_eq!(due.now, node.now().await);
        cx.proving(["recurring.due"]);
        assert_eq!((claimed_names(&due), due.next_in), (vec!["n"], None));
    }

    #[proves("recurring.due", "recurring.hint")]
    #[needs(Clock, Recurring)]
    async fn the_longest_due_go_first_and_what_is_left_is_told(cx: &Cx) {
        let node = cx.node().await;
        for (named, seconds) in [("c", 20), ("b", 10), ("d", 10), ("a", 20), ("later", 50)] {
            let recurring = Recurring::every(seconds * SECOND).job(job());
            node.define(recurring.named(named)).await;
        }
        cx.advance(30 * SECOND).await;
        let first = node.claim_due(3).await;
        assert_eq!(claimed_names(&first), ["b", "d", "a"]);
        assert_eq!(first.next_in, Some(Duration::ZERO));
        let second = node.claim_due(3).await;
        assert_eq!((claimed_names(&second), second.next_in), (vec!["c"], Some(20 * SECOND)));
        // Claimed definitions that are not fired are due again when their lease ends.
        cx.advance(25 * SECOND).await;
        assert_eq!(claimed_names(&node.claim_due(3).await), ["later"]);
        assert_eq!(node.claim_due(3).await.next_in, Some(35 * SECOND));
    }

    #[proves("recurring.claim", "recurring.due")]
    #[needs(Clock, Recurring)]
    async fn a_claimed_definition_is_left_to_its_node_until_the_lease_ends(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        let due = a.claim_due(1).await;
        let stored = b.definition("n").await;
        assert_eq!(due.definitions, std::slice::from_ref(&stored));
        assert_eq!(stored.claim, Some((a.id, due.now + MINUTE)));
        assert_eq!(stored.revision, 2);
        cx.advance(MINUTE - MILLI).await;
        let none = b.claim_due(1).await;
        assert_eq!((none.definitions, none.next_in), (vec![], Some(MILLI)));
        cx.advance(MILLI).await;
        let again = b.claim_due(1).await;
        assert_eq!(again.definitions[0].revision, 3);
        let late = due.definitions[0].plan(due.now).expect("it was due");
        assert_nothing(&a, &late).await;
        let firing = again.definitions[0].plan(again.now).expect("the definition should be due");
        assert!(matches!(b.fire(&firing).await, Fired::Applied(_)));
    }

    #[proves("recurring.claim")]
    #[needs(Clock, Recurring)]
    async fn racing_claimers_get_every_definition_once(cx: &Cx) {
        const ALL: usize = 24;
        let nodes = cx.nodes(4).await;
        for number in 0..ALL {
            nodes[0].define(minutely().named(&format!("n{number}"))).await;
        }
        cx.advance(MINUTE).await;
        let claimed = race(4, |racer| {
            let node = nodes[racer].sibling();
            async move {
                let mut mine = Vec::new();
                // A claim may skip definitions that other racers claim at the same moment. So each
                // racer repeats its claim until no definition is due.
                loop {
                    let due = node.claim_due(2).await;
                    mine.extend(due.definitions.iter().map(RecurringRecord::token));
                    if due.next_in != Some(Duration::ZERO) {
                        return mine;
                    }
                }
            }
        })
        .await;
        let all: Vec<_> = claimed.into_iter().flatten().collect();
        let once: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len(), once.len()), (ALL, ALL));
    }

    #[proves("recurring.validate", "recurring.due")]
    #[needs(Recurring)]
    async fn claims_of_nothing_or_for_no_time_are_refused(cx: &Cx) {
        let node = cx.node().await;
        let request = |limit| RecurringClaimRequest::new(node.id, limit);
        let claim = node.recurring().claim_due_recurring(&request(0)).await;
        assert_refused(claim, "limit");
        let short = request(1).lease(Duration::ZERO);
        assert_refused(node.recurring().claim_due_recurring(&short).await, "lease");
        assert_eq!(ok(node.recurring().fire(&[]).await), []);
    }

    #[proves("recurring.fire", "recurring.origin")]
    #[needs(Clock, Recurring)]
    async fn a_firing_makes_the_job_of_its_slot_and_moves_on(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let template = job().queue("reports").priority(Priority::High).timeout(SECOND);
        let recurring = Recurring::every(MINUTE).job(template.clone());
        let record = a.define(recurring.named("n")).await;
        let slot = record.created_at + MINUTE;
        cx.advance(MINUTE + 7 * SECOND).await;
        let due = a.claim_due(1).await;
        let firing = due.definitions[0].plan(due.now).expect("the definition should be due");
        let id = JobId::of_slot(record.incarnation, slot);
        assert_eq!(a.fire(&firing).await, Fired::Applied(vec![Enqueued::Created(id)]));
        let moved = b.definition("n").await;
        assert_eq!(Some(&moved), due.definitions[0].fired(&firing).as_ref());
        assert_eq!((moved.next_fire, moved.last_slot), (Some(slot + MINUTE), Some(slot)));
        assert_eq!(moved.claim, None);
        let mut spec = template.spec().clone();
        let definition = name("n");
        spec.recurring = Some(RecurringOrigin { name: definition, slot: Some(slot) });
        let expected = JobRecord::new(id, spec, slot, b.now().await);
        assert_eq!(b.get(id).await, expected);
        assert_eq!(b.claim_ids(1).await, [id]);
        assert_eq!(b.claim_due(1).await.next_in, Some(53 * SECOND));
    }

    #[proves("recurring.origin", "enqueue.created")]
    #[needs(Clock, Recurring)]
    async fn a_job_out_of_turn_tells_its_definition_and_no_slot(cx: &Cx) {
        let node = cx.node().await;
        let record = node.define(minutely().named("n")).await;
        let now = record.job_now();
        let id = node.add(now).await;
        let origin = node.get(id).await.spec.recurring;
        let definition = name("n");
        assert_eq!(origin, Some(RecurringOrigin { name: definition, slot: None }));
        assert_eq!(node.definition("n").await, record);
        assert_eq!(node.claim_ids(1).await, [id]);
    }

    #[proves("recurring.stale", "recurring.pause", "recurring.delete")]
    #[needs(Clock, Recurring)]
    async fn whatever_happens_to_a_definition_makes_an_open_claim_stale(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        a.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        let paused = a.plan_one().await;
        b.set_definition_paused("n", true).await;
        assert_nothing(&a, &paused).await;
        b.set_definition_paused("n", false).await;
        assert_nothing(&a, &paused).await;
        cx.advance(MINUTE).await;
        let edited = a.plan_one().await;
        assert_eq!(b.put(minutely().misfire(Misfire::Skip).named("n")).await, PutOutcome::Changed);
        assert_nothing(&a, &edited).await;
        let deleted = a.plan_one().await;
        b.delete_definition("n").await;
        assert_nothing(&a, &deleted).await;
        b.define(minutely().named("n")).await;
        assert_nothing(&a, &deleted).await;
        // The old token is stale even if the new definition has the same revision.
        cx.advance(MINUTE).await;
        let fresh = b.plan_one().await;
        let mut ghost = deleted;
        ghost.token.revision = fresh.token.revision;
        assert_nothing(&a, &ghost).await;
        assert!(matches!(b.fire(&fresh).await, Fired::Applied(_)));
    }

    #[proves("recurring.slot", "recurring.stale")]
    #[needs(Clock, Recurring)]
    async fn of_many_that_fire_one_slot_one_makes_its_job(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        nodes[0].define(minutely().named("n")).await;
        for round in 1..=4_usize {
            cx.advance(MINUTE).await;
            let firing = nodes[0].plan_one().await;
            let answers = race(8, |racer| {
                let (node, firing) = (nodes[racer % 4].sibling(), firing.clone());
                async move { node.fire(&firing).await }
            })
            .await;
            let applied = answers.iter().filter(|answer| **answer != Fired::Stale);
            assert_eq!(applied.count(), 1, "{answers:?}");
            assert_eq!(slots(&nodes[0]).await.len(), round);
        }
    }

    #[proves("recurring.slot", "recurring.claim", "recurring.fire")]
    #[needs(Clock, Recurring)]
    async fn racing_tickers_make_one_job_for_every_slot(cx: &Cx) {
        const ROUNDS: u32 = 5;
        const DEFINITIONS: usize = 6;
        let nodes = cx.nodes(3).await;
        for number in 0..DEFINITIONS {
            nodes[0].define(minutely().named(&format!("n{number}"))).await;
        }
        for _ in 0..ROUNDS {
            cx.advance(MINUTE).await;
            race(6, |racer| {
                let node = nodes[racer % 3].sibling();
                async move {
                    loop {
                        let due = node.claim_due(2).await;
                        let plans = due.definitions.iter().filter_map(|one| one.plan(due.now));
                        let firings: Vec<RecurringFiring> = plans.collect();
                        ok(node.recurring().fire(&firings).await);
                        if due.next_in != Some(Duration::ZERO) {
                            return;
                        }
                    }
                }
            })
            .await;
        }
        let jobs = nodes[0].everything().await;
        let origins = jobs.iter().filter_map(|job| job.spec.recurring.clone());
        let origins = origins.map(|origin| (origin.name, origin.slot));
        let once: BTreeSet<_> = origins.collect();
        let all = ROUNDS as usize * DEFINITIONS;
        assert_eq!((jobs.len(), once.len()), (all, all));
    }

    #[proves("recurring.pause", "recurring.stale", "recurring.atomic")]
    #[needs(Clock, Recurring)]
    async fn a_pause_that_races_with_a_firing_comes_before_or_after_it(cx: &Cx) {
        let nodes = cx.nodes(2).await;
        let mut made = 0;
        for round in 0..12 {
            let named = format!("n{round}");
            nodes[0].define(minutely().named(&named)).await;
            cx.advance(MINUTE).await;
            let firing = nodes[0].plan_one().await;
            let answers = race(2, |racer| {
                let (node, firing, named) = (nodes[racer].sibling(), firing.clone(), named.clone());
                async move {
                    if racer == 0 {
                        return Some(node.fire(&firing).await);
                    }
                    assert_eq!(node.set_definition_paused(&named, true).await, Changed::Changed);
                    None
                }
            })
            .await;
            let record = nodes[0].definition(&named).await;
            assert!(record.paused);
            match answers.into_iter().flatten().next() {
                Some(Fired::Applied(_)) => {
                    made += 1;
                    assert_eq!(record.last_slot, firing.last_slot());
                }
                _ => assert_eq!(record.last_slot, None),
            }
            assert_eq!(slots(&nodes[0]).await.len(), made);
        }
    }

    #[proves("recurring.fire", "recurring.clock")]
    #[needs(Clock, Recurring)]
    async fn overdue_slots_run_as_the_misfire_policy_says(cx: &Cx) {
        let all = [
            (Misfire::Skip, 0),
            (Misfire::FireOnce, 1),
            (Misfire::CatchUp(4), 4),
            (Misfire::CatchUp(11), 10),
        ];
        for (misfire, runs) in all {
            let other = cx.another().await;
            let node = other.node().await;
            let record = node.define(minutely().misfire(misfire).named("n")).await;
            let slot = |number: u32| record.created_at + number * MINUTE;
            // A single overdue slot always runs.
            other.advance(2 * MINUTE - MILLI).await;
            let one = node.plan_one().await;
            assert!(matches!(node.fire(&one).await, Fired::Applied(_)));
            assert_eq!(slots(&node).await, [slot(1)], "{misfire:?}");
            assert_eq!(node.definition("n").await.next_fire, Some(slot(2)));
            // Ten more slots pass.
            other.advance(10 * MINUTE).await;
            let many = node.plan_one().await;
            assert!(matches!(node.fire(&many).await, Fired::Applied(_)));
            let expected: Vec<_> = (1..=1 + runs).map(slot).collect();
            assert_eq!(slots(&node).await, expected, "{misfire:?}");
            assert_eq!(node.definition("n").await.next_fire, Some(slot(12)));
            assert_eq!(node.claim_due(1).await.next_in, Some(MILLI));
            drop(node);
            cx.close(other).await;
        }
    }

    #[proves("recurring.fire")]
    #[needs(Clock, Recurring)]
    async fn the_last_slot_stays_when_a_firing_has_no_later_one(cx: &Cx) {
        let node = cx.node().await;
        let record = node.define(minutely().misfire(Misfire::Skip).named("n")).await;
        let slot = |number: u32| record.created_at + number * MINUTE;
        // With `Misfire::Skip`, a single overdue slot runs. If several slots are overdue, none of
        // them runs.
        for (minutes, jobs, last) in [(3, 0, None), (1, 1, Some(slot(4))), (3, 0, Some(slot(4)))] {
            cx.advance(minutes * MINUTE).await;
            let firing = node.plan_one().await;
            assert_eq!(firing.jobs.len(), jobs);
            assert!(matches!(node.fire(&firing).await, Fired::Applied(_)));
            assert_eq!(node.definition("n").await.last_slot, last);
        }
        // Fires a plan for slot 2, which is earlier than the last slot. The last slot must not move
        // back.
        cx.advance(MINUTE).await;
        let claimed = node.claim_due(1).await.definitions.remove(0);
        let mut earlier = claimed.clone();
        earlier.next_fire = Some(slot(2));
        let firing = earlier.plan(slot(2)).expect("the definition should be due");
        assert!(matches!(node.fire(&firing).await, Fired::Applied(_)));
        let fired = node.definition("n").await;
        assert_eq!(Some(&fired), claimed.fired(&firing).as_ref());
        assert_eq!((fired.last_slot, fired.next_fire), (Some(slot(4)), Some(slot(3))));
    }

    #[proves("recurring.fire", "keys.unique")]
    #[needs(Clock, Recurring)]
    async fn a_slot_is_skipped_while_a_job_of_the_definition_is_unfinished(cx: &Cx) {
        let node = cx.node().await;
        let record = node.define(minutely().overlap(Overlap::Skip).named("n")).await;
        let slot = |number: u32| record.created_at + number * MINUTE;
        cx.advance(MINUTE).await;
        let first = node.plan_one().await;
        node.fire(&first).await;
        let running = node.take().await;
        cx.advance(MINUTE).await;
        let second = node.plan_one().await;
        let skipped = Fired::Applied(vec![Enqueued::Duplicate(running.job)]);
        assert_eq!(node.fire(&second).await, skipped);
        let moved = node.definition("n").await;
        assert_eq!((moved.next_fire, moved.last_slot), (Some(slot(3)), Some(slot(2))));
        // A job of the definition that is created outside the schedule is a duplicate too.
        assert_eq!(node.offer(&moved.job_now()).await, Enqueued::Duplicate(running.job));
        node.succeed(running).await;
        cx.advance(MINUTE).await;
        let third = node.plan_one().await;
        node.fire(&third).await;
        assert_eq!(slots(&node).await, [slot(1), slot(3)]);
    }

    #[proves("recurring.fire", "keys.unique")]
    #[needs(Clock, Recurring)]
    async fn a_definition_shares_its_key_with_clients_and_other_definitions(cx: &Cx) {
        let node = cx.node().await;
        let keyed = || job().unique_key("k");
        let skipping = || minutely().job(keyed()).overlap(Overlap::Skip);
        node.define(skipping().named("n")).await;
        let first = node.add(keyed()).await;
        let fire = || async {
            cx.advance(MINUTE).await;
            node.fire(&node.plan_one().await).await
        };
        assert_eq!(fire().await, Fired::Applied(vec![Enqueued::Duplicate(first)]));
        node.succeed(node.take().await).await;
        let Fired::Applied(answers) = fire().await else {
            panic!("expected the definition to fire");
        };
        let [Enqueued::Created(slot)] = answers[..] else {
            panic!("expected a job of the slot, found {answers:?}");
        };
        assert_eq!(node.get(slot).await.spec.unique_key, Some(name("k")));
        assert_eq!(node.offer(&keyed()).await, Enqueued::Duplicate(slot));
        let other = node.define(skipping().named("o")).await;
        assert_eq!(node.offer(&other.job_now()).await, Enqueued::Duplicate(slot));
        node.succeed(node.take().await).await;
        node.add(keyed()).await;
    }

    #[proves("recurring.fire", "recurring.due", "recurring.hint")]
    #[needs(Clock, Recurring)]
    async fn a_definition_without_further_slots_is_never_due_again(cx: &Cx) {
        let node = cx.node().await;
        let end = node.now().await + 2 * MINUTE;
        let bounded = minutely().misfire(Misfire::CatchUp(9));
        let record = node.define(bounded.clone().ends_at(end).named("n")).await;
        cx.advance(HOUR).await;
        cx.proving(["recurring.fire"]);
        let last = node.plan_one().await;
        node.fire(&last).await;
        assert_eq!(slots(&node).await, [record.created_at + MINUTE, end]);
        cx.proving(["recurring.due", "recurring.hint"]);
        cx.advance(DAY).await;
        let due = node.claim_due(1).await;
        assert_eq!((due.definitions, due.next_in), (vec![], None));
        assert_eq!(node.definition("n").await.next_fire, None);
        // The definition still exists, and can get more slots.
        assert_eq!(node.put(bounded.named("n")).await, PutOutcome::Changed);
        assert_eq!(node.claim_due(1).await.next_in, Some(MINUTE));
    }

    #[proves("recurring.atomic", "recurring.stale")]
    #[needs(Clock, Recurring)]
    async fn a_stale_firing_does_not_disturb_the_others_of_its_call(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        let all = ["a", "b", "c", "d"];
        for named in all {
            a.define(minutely().named(named)).await;
        }
        cx.advance(MINUTE).await;
        let due = a.claim_due(10).await;
        b.set_definition_paused("b", true).await;
        b.delete_definition("d").await;
        let plans = due.definitions.iter().filter_map(|one| one.plan(due.now));
        // The order of the firings does not matter.
        let mut firings: Vec<RecurringFiring> = plans.collect();
        firings.reverse();
        let answers = ok(a.recurring().fire(&firings).await);
        let applied: Vec<bool> = answers.iter().map(|one| *one != Fired::Stale).collect();
        assert_eq!(applied, [false, true, false, true]);
        let ids: Vec<JobId> = a.everything().await.iter().map(|job| job.id).collect();
        let told = answers.iter().flat_map(|answer| match answer {
            Fired::Applied(jobs) => jobs.iter().map(|job| job.id()).collect(),
            Fired::Stale => Vec::new(),
        });
        let told: BTreeSet<JobId> = told.collect();
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), told);
        assert_eq!(told.len(), 2);
    }

    #[proves("recurring.validate", "recurring.atomic", "limits.batch")]
    #[needs(Clock, Recurring)]
    async fn a_call_that_is_refused_fires_nothing(cx: &Cx) {
        let node = cx.node().await;
        for number in 0..11 {
            let all = minutely().misfire(Misfire::CatchUp(MAX_CATCH_UP));
            node.define(all.named(&format!("n{number}"))).await;
        }
        cx.advance(MAX_CATCH_UP * MINUTE).await;
        let due = node.claim_due(20).await;
        let plans = due.definitions.iter().filter_map(|one| one.plan(due.now));
        let mut firings: Vec<RecurringFiring> = plans.collect();
        let jobs: usize = firings.iter().map(|firing| firing.jobs.len()).sum();
        assert_eq!(jobs, 11_000);
        cx.proving(["limits.batch"]);
        assert_refused(node.recurring().fire(&firings).await, "jobs");
        firings.truncate(1);
        firings.push(firings[0].clone());
        cx.proving(["recurring.validate"]);
        assert_refused(node.recurring().fire(&firings).await, "firings");
        cx.proving(["recurring.atomic"]);
        assert_eq!(node.everything().await, []);
        cx.proving(["limits.batch"]);
        // One call can create as many jobs as a single definition may fire.
        firings.truncate(1);
        let answers = ok(node.recurring().fire(&firings).await);
        let Fired::Applied(jobs) = &answers[0] else {
            panic!("expected a firing with the current token to be applied, found it stale");
        };
        assert_eq!(jobs.len(), MAX_CATCH_UP as usize);
    }

    #[proves("recurring.slot", "recurring.due", "time.clock")]
    #[needs(Clock, Recurring)]
    async fn no_slot_comes_again_when_the_clock_is_set_back(cx: &Cx) {
        let node = cx.node().await;
        let record = node.define(minutely().named("n")).await;
        cx.advance(MINUTE).await;
        let firing = node.plan_one().await;
        node.fire(&firing).await;
        cx.set_back(30 * SECOND).await;
        assert_eq!(node.claim_due(1).await.next_in, Some(90 * SECOND));
        // Not even an edit, a pause or a resumption makes the slot fire again.
        let twice = Recurring::every(30 * SECOND).job(job()).named("n");
        assert_eq!(node.put(twice).await, PutOutcome::Changed);
        let next = node.definition("n").await.next_fire;
        assert_eq!(next, Some(record.created_at + 90 * SECOND));
        node.set_definition_paused("n", true).await;
        node.set_definition_paused("n", false).await;
        assert_eq!(node.definition("n").await.next_fire, next);
    }
}
