//! Tests of recurring definitions: nodes declare them, and fire each slot on time and only once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::model::{JobFilter, JobOrder, PageRequest, PutRecurring};
use ratchet_core::store::{JobStore, NodeStore, RecurringStore, Store};
use ratchet_core::time::{self, Timestamp};
use ratchet_core::{
    Enqueued, JobRecord, JobState, MemoryStore, Misfire, Name, NewJob, NodeBuilder, Overlap,
    PutOutcome, Ratchet, Recurring,
};
use tokio::time::{sleep, timeout};

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Returns a job whose body succeeds.
fn job(world: &World) -> NewJob {
    world.job("ok", |_| async { Ok(()) })
}

fn builder(world: &World) -> NodeBuilder {
    // The node searches for changed definitions only every 100 minutes, so the firings in these
    // tests do not depend on this search.
    world.builder().recurring_interval(100 * MINUTE)
}

async fn jobs(store: &MemoryStore) -> Vec<JobRecord> {
    let page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
    store.list(&JobFilter::all(), &page).await.unwrap().jobs
}

fn slots(jobs: &[JobRecord]) -> Vec<Timestamp> {
    let slot = |job: &JobRecord| job.spec.recurring.as_ref()?.slot;
    jobs.iter().filter_map(slot).collect()
}

fn name(text: &str) -> Name {
    Name::new("name", text).unwrap()
}

async fn definitions(store: &MemoryStore) -> Vec<String> {
    let page = store.definitions(None, 100).await.unwrap();
    let names = page.definitions.iter().map(|one| one.definition.name());
    names.map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn every_slot_is_fired_once_and_in_time_by_whatever_node() {
    let world = World::new();
    let started = Arc::new(Mutex::new(Vec::new()));
    let body = {
        let (store, started) = (world.store.clone(), Arc::clone(&started));
        move |ctx: ratchet_core::JobContext| {
            let (store, started) = (store.clone(), Arc::clone(&started));
            async move {
                let now = store.database_time().await.unwrap();
                started.lock().unwrap().push((ctx.slot().unwrap(), now));
                Ok(())
            }
        }
    };
    let minutely = Recurring::every(MINUTE)
        .job(world.job("timed", body))
        .named("n");
    let nodes: Vec<Started> = (0..3)
        .map(|seed| {
            let node = builder(&world).seed(seed).recurring(minutely.clone());
            Started::new(node.build().unwrap())
        })
        .collect();
    sleep(20 * MINUTE + 30 * SECOND).await;
    let fired: u64 = nodes.iter().map(|one| one.node.stats().fired).sum();
    assert_eq!(fired, 20);
    stop_all(nodes).await;
    let created = world
        .store
        .find(&name("n"))
        .await
        .unwrap()
        .unwrap()
        .created_at;
    let expected: Vec<Timestamp> = (1..=20).map(|slot| created + slot * MINUTE).collect();
    assert_eq!(slots(&jobs(&world.store).await), expected);
    let started = started.lock().unwrap();
    assert_eq!(started.len(), 20);
    for (slot, at) in started.iter() {
        // A firing is late only by the jitter of the loop, not by a poll interval.
        assert!(
            at >= slot && *at - slot < TimeDelta::milliseconds(100),
            "{slot} at {at}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_put_at_run_time_needs_no_look() {
    let world = World::new();
    let node = Started::new(builder(&world).build().unwrap());
    sleep(SECOND).await;
    let recurring = node.node.client().recurring();
    let every = |interval| Recurring::every(interval).job(job(&world)).named("n");
    assert_eq!(
        recurring.put(every(1_000 * MINUTE)).await.unwrap(),
        PutOutcome::Created
    );
    sleep(SECOND).await;
    // A shorter interval takes effect at once.
    assert_eq!(
        recurring.put(every(10 * SECOND)).await.unwrap(),
        PutOutcome::Changed
    );
    assert_eq!(
        recurring.put(every(10 * SECOND)).await.unwrap(),
        PutOutcome::Unchanged
    );
    sleep(35 * SECOND).await;
    assert_eq!(jobs(&world.store).await.len(), 3);
    recurring.pause("n").await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(jobs(&world.store).await.len(), 3);
    recurring.resume("n").await.unwrap();
    sleep(8 * SECOND).await;
    assert_eq!(jobs(&world.store).await.len(), 4);
    recurring.delete("n").await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(jobs(&world.store).await.len(), 4);
    assert_eq!(recurring.get("n").await.unwrap(), None);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_another_process_puts_is_found_within_the_interval() {
    let world = World::new();
    let node = world.builder().recurring_interval(5 * SECOND);
    let node = Started::new(node.build().unwrap());
    sleep(SECOND).await;
    let elsewhere = Ratchet::client(Arc::new(world.store.clone())).recurring();
    let every = Recurring::every(3 * SECOND)
        .job(job(&world))
        .misfire(Misfire::CatchUp(9));
    elsewhere.put(every.named("n")).await.unwrap();
    sleep(10 * SECOND).await;
    assert_eq!(jobs(&world.store).await.len(), 3);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_slot_bounds_the_sleep_and_an_idle_node_hardly_looks() {
    let world = World::new();
    let looks = Arc::new(Mutex::new(0));
    let counted = {
        let looks = Arc::clone(&looks);
        world.store.clone().with_faults(move |operation| {
            if operation == "claim_due_recurring" {
                *looks.lock().unwrap() += 1;
            }
            Fault::None
        })
    };
    let node = world.builder_on(counted).recurring_interval(5 * SECOND);
    let hourly = Recurring::every(60 * MINUTE).job(job(&world)).named("n");
    let node = Started::new(node.recurring(hourly).build().unwrap());
    sleep(59 * MINUTE).await;
    let idle = *looks.lock().unwrap();
    assert!(
        (59 * 2..59 * 3).contains(&idle),
        "expected 118 to 176 reads of the definitions in 59 minutes, found {idle}"
    );
    sleep(2 * MINUTE).await;
    assert_eq!(jobs(&world.store).await.len(), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_leader_fires_every_slot_and_the_others_fire_if_it_does_not() {
    let world = World::new();
    let minutely = Recurring::every(MINUTE).job(job(&world)).named("n");
    let leader = world.builder().recurring(minutely.clone()).build().unwrap();
    let leader = Started::new(leader);
    sleep(SECOND).await;
    let fired = Arc::new(AtomicUsize::new(0));
    let counted = world.store.clone().with_faults({
        let fired = Arc::clone(&fired);
        move |operation| {
            fired.fetch_add(usize::from(operation == "fire"), Ordering::SeqCst);
            Fault::None
        }
    });
    let follower = |seed| {
        let node = world.builder_on(counted.clone()).seed(seed);
        Started::new(node.recurring(minutely.clone()).build().unwrap())
    };
    let followers: Vec<Started> = (0..3).map(follower).collect();
    sleep(10 * MINUTE + 57 * SECOND).await;
    assert_eq!(jobs(&world.store).await.len(), 10);
    assert_eq!(fired.load(Ordering::SeqCst), 0);
    // The leader dies just before a slot. Until then, the other nodes received its beacons, so they
    // still leave the firing to it at first.
    leader.kill().await;
    sleep(3 * SECOND).await;
    let all = jobs(&world.store).await;
    let late = all.last().map(|job| job.created_at - slots(&all)[10]);
    assert!(
        late.is_some_and(|late| late.num_milliseconds() <= 500),
        "{late:?} late"
    );
    stop_all(followers).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_declares_what_is_stored_writes_nothing_and_wakes_no_node() {
    let world = World::new();
    let puts = Arc::new(AtomicUsize::new(0));
    let counted = world.store.clone().with_faults({
        let puts = Arc::clone(&puts);
        move |operation| {
            puts.fetch_add(usize::from(operation == "put"), Ordering::SeqCst);
            Fault::None
        }
    });
    let start = |changed: usize| {
        let definition = |n: usize| {
            let minutes = if n == changed { 7 } else { 5 };
            let every = Recurring::every(minutes * MINUTE);
            every.job(job(&world)).named(&format!("{n:04}"))
        };
        let mut node = world.builder_on(counted.clone());
        for n in 0..1_200 {
            node = node.recurring(definition(n));
        }
        Started::new(node.build().unwrap())
    };
    let mut wakeups = world.store.coordinator().unwrap().subscribe();
    for (changed, expected) in [(usize::MAX, 1_200), (usize::MAX, 0), (1_199, 1)] {
        let node = start(changed);
        sleep(SECOND).await;
        assert_eq!(puts.swap(0, Ordering::SeqCst), expected, "{changed}");
        node.stop().await.unwrap();
        let mut woken = 0;
        while let Ok(wakeup) = timeout(Duration::from_millis(1), wakeups.next()).await {
            woken += usize::from(wakeup.to.is_none());
        }
        assert_eq!(woken, expected.min(1), "{changed}");
    }
    assert_eq!(definitions(&world.store).await.len(), 100);
}

/// Lets the node's timers run while the database's clock stands still, so that every timer is
/// early.
#[tokio::test(start_paused = true)]
async fn a_timer_that_wakes_early_fires_nothing() {
    let mut world = World::new();
    let clock = ManualClock::new(time::from_millis(1_790_000_000_000));
    world.store = MemoryStore::with_clock(clock.clone());
    let minutely = Recurring::every(MINUTE).job(job(&world)).named("n");
    let node = world.builder().recurring(minutely).build().unwrap();
    let node = Started::new(node);
    sleep(SECOND).await;
    clock.advance(MINUTE - Duration::from_millis(140));
    sleep(10 * SECOND).await;
    assert_eq!(jobs(&world.store).await, []);
    clock.advance(Duration::from_millis(140));
    sleep(40 * SECOND).await;
    assert_eq!(jobs(&world.store).await.len(), 1);
    assert_eq!(node.node.stats().fired, 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn slots_of_an_outage_are_made_up_for_as_the_policy_says() {
    for (misfire, made) in [
        (Misfire::Skip, 0),
        (Misfire::FireOnce, 1),
        (Misfire::CatchUp(4), 4),
    ] {
        let world = World::new();
        let minutely = Recurring::every(MINUTE).misfire(misfire).job(job(&world));
        let client = Ratchet::client(Arc::new(world.store.clone())).recurring();
        client.put(minutely.named("n")).await.unwrap();
        let created = client.get("n").await.unwrap().unwrap().created_at;
        // No node runs while these slots pass.
        sleep(10 * MINUTE + 30 * SECOND).await;
        let node = Started::new(builder(&world).build().unwrap());
        sleep(SECOND).await;
        let expected: Vec<Timestamp> = (1..=made).map(|slot| created + slot * MINUTE).collect();
        assert_eq!(slots(&jobs(&world.store).await), expected, "{misfire:?}");
        sleep(MINUTE).await;
        let all = slots(&jobs(&world.store).await);
        assert_eq!(all.last(), Some(&(created + 11 * MINUTE)));
        assert_eq!(all.len(), expected.len() + 1);
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_job_lets_its_definition_skip_slots() {
    let world = World::new();
    let slow = world.job("slow", |_| async {
        sleep(150 * SECOND).await;
        Ok(())
    });
    let minutely = Recurring::every(MINUTE).overlap(Overlap::Skip).job(slow);
    let node = builder(&world).recurring(minutely.named("n"));
    let node = Started::new(node.build().unwrap());
    sleep(9 * MINUTE + 40 * SECOND).await;
    // Each job runs for two and a half minutes, during which two slots are skipped. So jobs run for
    // the slots at 1, 4 and 7 minutes.
    let all = jobs(&world.store).await;
    let created = world
        .store
        .find(&name("n"))
        .await
        .unwrap()
        .unwrap()
        .created_at;
    let expected = [1, 4, 7].map(|minute| created + minute * MINUTE);
    assert_eq!(slots(&all), expected);
    let recurring = node.node.client().recurring();
    let triggered = recurring.trigger("n").await.unwrap();
    assert!(
        matches!(triggered, Some(Enqueued::Created(_))),
        "{triggered:?}"
    );
    let again = recurring.trigger("n").await.unwrap();
    assert!(matches!(again, Some(Enqueued::Duplicate(_))), "{again:?}");
    assert_eq!(recurring.trigger("other").await.unwrap(), None);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_store_double_no_slot_and_lose_none() {
    let world = World::new();
    let seed = Mutex::new(fastrand::Rng::with_seed(11));
    let shaky = world.store.clone().with_faults(move |operation| {
        let random = seed.lock().unwrap().u8(0..10);
        match (operation, random) {
            ("fire" | "claim_due_recurring" | "put", 0..2) => Fault::ErrorBeforeCommit,
            ("fire" | "claim_due_recurring" | "put", 2..5) => Fault::ErrorAfterCommit,
            _ => Fault::None,
        }
    });
    let every = Recurring::every(10 * SECOND)
        .misfire(Misfire::CatchUp(100))
        .job(job(&world))
        .named("n");
    let node = world.builder_on(shaky).recurring(every);
    let node = Started::new(node.build().unwrap());
    sleep(10 * MINUTE).await;
    let record = world.store.find(&name("n")).await.unwrap().unwrap();
    node.stop().await.unwrap();
    let all = slots(&jobs(&world.store).await);
    let count = i64::try_from(all.len()).unwrap();
    let expected: Vec<Timestamp> = (1..=count)
        .map(|slot| record.created_at + TimeDelta::seconds(slot * 10))
        .collect();
    assert_eq!(all, expected);
    // The last slots may not have fired yet: if the answer to a claim is lost, the definition can
    // be claimed again only when the lease of the claim ends.
    assert!(count >= 50, "{count} of 59 slots");
    assert_eq!(record.last_slot, all.last().copied());
}

#[tokio::test(start_paused = true)]
async fn a_firing_that_fails_once_is_tried_again_long_before_its_lease_ends() {
    let world = World::new();
    let failed = Arc::new(Mutex::new(false));
    let shaky = world.store.clone().with_faults(move |operation| {
        let mut failed = failed.lock().unwrap();
        if operation == "fire" && !*failed {
            *failed = true;
            return Fault::ErrorBeforeCommit;
        }
        Fault::None
    });
    let minutely = Recurring::every(MINUTE).job(job(&world)).named("n");
    let node = world.builder_on(shaky).recurring(minutely);
    let node = Started::new(node.build().unwrap());
    sleep(MINUTE + 2 * SECOND).await;
    assert_eq!(slots(&jobs(&world.store).await).len(), 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_dies_between_claim_and_firing_delays_the_slot_by_its_lease() {
    let world = World::new();
    let stuck = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "fire" => Fault::Delay(1_000 * MINUTE),
            _ => Fault::None,
        });
    let minutely = Recurring::every(MINUTE).job(job(&world)).named("n");
    let first = world.builder_on(stuck).recurring(minutely);
    let first = Started::new(first.build().unwrap());
    sleep(MINUTE + SECOND).await;
    first.kill().await;
    assert_eq!(jobs(&world.store).await, []);
    let second = Started::new(builder(&world).build().unwrap());
    sleep(SECOND).await;
    assert_eq!(jobs(&world.store).await, []);
    sleep(2 * SECOND).await;
    assert_eq!(slots(&jobs(&world.store).await).len(), 1);
    second.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_firing_that_is_under_way_is_ended_before_the_node_leaves() {
    let world = World::new();
    let slow = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "fire" => Fault::Delay(2 * SECOND),
            _ => Fault::None,
        });
    let minutely = Recurring::every(MINUTE).job(job(&world)).named("n");
    let node = world.builder_on(slow).recurring(minutely);
    let node = Started::new(node.build().unwrap());
    sleep(MINUTE + SECOND).await;
    assert_eq!(jobs(&world.store).await, []);
    node.stop().await.unwrap();
    assert_eq!(slots(&jobs(&world.store).await).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_cannot_be_fired_keeps_no_other_from_its_slot() {
    let world = World::new();
    let fired = AtomicUsize::new(0);
    // The call that fires both definitions fails four times. Then the call that fires only the
    // first definition fails.
    let shaky = world
        .store
        .clone()
        .with_faults(move |operation| match operation {
            "fire" if fired.fetch_add(1, Ordering::SeqCst) < 5 => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        });
    let minutely = |named: &str| Recurring::every(MINUTE).job(job(&world)).named(named);
    let put = PutRecurring::new(minutely("a").check().unwrap());
    world.store.put(&put).await.unwrap();
    let put = PutRecurring::new(minutely("b").check().unwrap());
    world.store.put(&put).await.unwrap();
    let node = Started::new(world.builder_on(shaky).build().unwrap());
    sleep(MINUTE + 2 * SECOND).await;
    let all = jobs(&world.store).await;
    let origins = all.iter().filter_map(|job| job.spec.recurring.as_ref());
    let names: Vec<&str> = origins.map(|origin| origin.name.as_str()).collect();
    assert_eq!(names, ["b"]);
    sleep(3 * SECOND).await;
    assert_eq!(jobs(&world.store).await.len(), 2);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_declared_definition_waits_for_the_permit_that_it_needs() {
    let world = World::new();
    let minutely = Recurring::every(MINUTE).job(job(&world).permit("api"));
    let node = builder(&world).recurring(minutely.named("n"));
    let node = Started::new(node.build().unwrap());
    sleep(SECOND).await;
    assert_eq!(definitions(&world.store).await, [""; 0]);
    node.node.client().set_permits("api", 1).await.unwrap();
    sleep(101 * MINUTE).await;
    assert_eq!(definitions(&world.store).await, ["n"]);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn declared_definitions_are_put_at_every_start_and_a_pause_stays() {
    let world = World::new();
    let declared = |expression: &str| {
        let recurring = Recurring::cron(expression).job(job(&world));
        Started::new(
            builder(&world)
                .recurring(recurring.named("n"))
                .build()
                .unwrap(),
        )
    };
    let first = declared("0 3 * * *");
    sleep(SECOND).await;
    let before = world.store.find(&name("n")).await.unwrap().unwrap();
    assert!(before.declared);
    first.node.client().recurring().pause("n").await.unwrap();
    first.stop().await.unwrap();
    let second = declared("0 3 * * *");
    sleep(SECOND).await;
    let same = world.store.find(&name("n")).await.unwrap().unwrap();
    assert_eq!((same.revision, same.paused), (before.revision + 1, true));
    second.stop().await.unwrap();
    let third = declared("0 4 * * *");
    sleep(SECOND).await;
    let edited = world.store.find(&name("n")).await.unwrap().unwrap();
    assert_eq!(edited.definition.schedule().expression(), Some("0 4 * * *"));
    assert!(edited.paused);
    assert_eq!(edited.incarnation, before.incarnation);
    third.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_declaration_waits_for_the_database() {
    let world = World::new();
    let away = Arc::new(Mutex::new(true));
    let outage = {
        let away = Arc::clone(&away);
        world.store.clone().with_faults(move |operation| {
            if operation == "put" && *away.lock().unwrap() {
                return Fault::ErrorBeforeCommit;
            }
            Fault::None
        })
    };
    let minutely = Recurring::every(MINUTE).job(job(&world)).named("n");
    let node = Started::new(
        world
            .builder_on(outage)
            .recurring(minutely)
            .build()
            .unwrap(),
    );
    sleep(MINUTE).await;
    assert!(definitions(&world.store).await.is_empty());
    *away.lock().unwrap() = false;
    sleep(10 * SECOND).await;
    assert_eq!(definitions(&world.store).await, ["n"]);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_a_node_that_is_to_retires_what_is_no_longer_declared() {
    let world = World::new();
    let declare = |names: &[&str], retire: bool| {
        let mut node = builder(&world).retire_recurring(retire);
        for named in names {
            let recurring = Recurring::every(MINUTE).job(job(&world));
            node = node.recurring(recurring.named(named));
        }
        Started::new(node.build().unwrap())
    };
    let old = declare(&["a", "b"], true);
    sleep(SECOND).await;
    let at_run_time = Recurring::every(MINUTE).job(job(&world)).named("c");
    old.node
        .client()
        .recurring()
        .put(at_run_time)
        .await
        .unwrap();
    let polite = declare(&["b"], false);
    sleep(SECOND).await;
    assert_eq!(definitions(&world.store).await, ["a", "b", "c"]);
    let new = declare(&["b", "d"], true);
    sleep(SECOND).await;
    assert_eq!(definitions(&world.store).await, ["b", "c", "d"]);
    stop_all([old, polite, new]).await;
}

#[test]
fn what_cannot_work_is_refused_when_the_node_is_built() {
    let world = World::new();
    let recurring = |named: &str| Recurring::cron("0 3 * * *").job(job(&world)).named(named);
    let node = world
        .builder()
        .recurring(recurring("n"))
        .recurring(recurring("n"))
        .recurring(Recurring::cron("0 3 * *").job(job(&world)).named("m"))
        .recurring(recurring("o").zone("Nowhere"))
        .recurring_interval(Duration::ZERO);
    let problems = node.build().unwrap_err().problems().join("\n");
    for part in [
        "the recurring job n is declared twice",
        "the recurring job m: cron has 4 fields",
        "the recurring job o: ",
        "Nowhere",
        "recurring_interval",
    ] {
        assert!(
            problems.contains(part),
            "expected a problem that contains `{part}`, found: \
             {problems}"
        );
    }
}

/// Checks that a body sees the slot that fired its job, also in a retry. The schedule is a cron
/// expression with seconds.
#[tokio::test(start_paused = true)]
async fn jobs_of_slots_run_like_all_others() {
    let world = World::new();
    let fails_once = world.job("fails once", |ctx| async move {
        if ctx.attempt() == 1 {
            return Err(ratchet_core::JobError::from("again"));
        }
        // The retry is due later, but the body still sees the original slot.
        assert!(ctx.slot().unwrap() < ctx.run_at());
        Ok(())
    });
    let cron = Recurring::cron("*/30 * * * * *").job(fails_once).named("n");
    let node = Started::new(builder(&world).recurring(cron).build().unwrap());
    sleep(MINUTE + 20 * SECOND).await;
    node.stop().await.unwrap();
    let all = jobs(&world.store).await;
    assert!(all.len() >= 2);
    for job in &all[..all.len() - 1] {
        assert_eq!(
            (job.state, job.attempts),
            (JobState::Succeeded, 2),
            "{job:?}"
        );
    }
}
