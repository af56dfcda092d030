use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::memory::{Fault, ManualClock};
use ratchet_core::metrics::*;
use ratchet_core::model::{DueRecurring, PauseRequest, PauseScope, RecurringClaimRequest};
use ratchet_core::store::{JobStore, Layered, QueueStore, RecurringStore, Store, StoreLayer};
use ratchet_core::{
    JobError, MemoryStore, Misfire, NewJob, Overlap, Ratchet, RateLimit, Recurring, Result, Retain,
    Retention, time,
};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::documents::counters_of_alerts;
use crate::jobs::Mail;
use crate::kit::{Scripted, Scripts, Started, World};
use crate::recorder::Metrics;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) async fn recurring_definitions_fire_late_and_miss_slots(metrics: &Metrics) {
    let world = World::new();
    let answer_is_lost = Arc::new(AtomicBool::new(false));
    let store = world.store.clone().with_faults({
        let lost = Arc::clone(&answer_is_lost);
        move |operation| match operation == "fire" && lost.swap(false, Ordering::SeqCst) {
            true => Fault::ErrorAfterCommit,
            false => Fault::None,
        }
    });
    let long = world.job("long", |_| async {
        sleep(25 * SECOND).await;
        Ok(())
    });
    let every = Recurring::every(10 * SECOND).job(long).named("often");
    let every = every.overlap(Overlap::Skip).misfire(Misfire::Skip);
    let build = || world.builder_on(store.clone()).build().unwrap();
    let node = Started::new(build());
    node.node.client().recurring().put(every).await.unwrap();
    sleep(32 * SECOND).await;
    let fired = |outcome| metrics.sum(RECURRING_FIRED, &[("outcome", outcome)]);
    assert_eq!((fired("created"), fired("skipped")), (1.0, 2.0));
    let late = metrics.values(RECURRING_LATENESS, &[]);
    assert_eq!(late.len(), 3);
    assert!(late.iter().all(|late| *late < 0.5), "{late:?}");
    // The next firing takes effect, but its answer is lost. So the node repeats it, and the
    // repetition is stale.
    answer_is_lost.store(true, Ordering::SeqCst);
    sleep(10 * SECOND).await;
    assert_eq!(fired("stale"), 1.0);
    assert_eq!(
        metrics
            .values(STORE_BACKOFF, &[("loop", "recurring")])
            .len(),
        1
    );
    node.stop().await.unwrap();
    assert_eq!(metrics.sum(RECURRING_MISSED, &[]), 0.0);
    sleep(600 * SECOND).await;
    let node = Started::new(build());
    sleep(15 * SECOND).await;
    assert_eq!(metrics.sum(RECURRING_MISSED, &[]), 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn the_leader_measures_the_named_queues(metrics: &Metrics) {
    let world = World::new();
    let jobs = |queue: &str, count| {
        (0..count)
            .map(|_| NewJob::new("mail", &()).queue(queue))
            .collect()
    };
    let early: Vec<NewJob> = jobs("mail", 3);
    world.store.enqueue(&early).await.unwrap();
    world
        .store
        .enqueue(&[early[0].clone().delay(600 * SECOND)])
        .await
        .unwrap();
    let unnamed: Vec<NewJob> = jobs("unnamed", 2);
    world.store.enqueue(&unnamed).await.unwrap();
    sleep(30 * SECOND).await;
    let build = || {
        // The node polls another queue, so that it does not run the jobs.
        let builder = world.builder().queues(["elsewhere"]);
        builder
            .measured_queues(["quiet", "mail", "mail"])
            .build()
            .unwrap()
    };
    let (node, other) = (Started::new(build()), Started::new(build()));
    sleep(10 * SECOND).await;
    let due = |queue| metrics.sum(QUEUE_DUE, &[("queue", queue)]);
    let oldest = |queue| metrics.sum(QUEUE_OLDEST_DUE, &[("queue", queue)]);
    // Both nodes use one recorder, but only the leader measures the queues. So no value is counted
    // twice.
    assert_eq!((due("mail"), due("quiet")), (3.0, 0.0));
    assert!(
        (30.0..=40.0).contains(&oldest("mail")),
        "{}",
        oldest("mail")
    );
    assert_eq!(oldest("quiet"), 0.0);
    let more: Vec<NewJob> = jobs("quiet", 1);
    world.store.enqueue(&more).await.unwrap();
    sleep(16 * SECOND).await;
    assert_eq!((due("mail"), due("quiet")), (3.0, 1.0));
    // Jobs of a paused queue do not count as due, because no node can claim them.
    let mail = PauseRequest::new(PauseScope::queue("mail").unwrap());
    world.store.pause(&mail).await.unwrap();
    sleep(16 * SECOND).await;
    assert_eq!((due("mail"), oldest("mail")), (0.0, 0.0));
    // When one node stops, the other one measures. When both have stopped, the gauges are 0.
    node.stop().await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(due("quiet"), 1.0);
    other.stop().await.unwrap();
    assert_eq!((due("quiet"), oldest("quiet")), (0.0, 0.0));
}

/// Counts the log lines of the task `backlog`, which measures queues: how many of its store outages
/// began, and how many ended.
#[derive(Clone, Default)]
struct Outages(Arc<[AtomicUsize; 2]>);

/// Whether an event belongs to the task `backlog`.
struct OfBacklog(bool);

impl Visit for OfBacklog {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 |= field.name() == "task" && value == "backlog";
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: tracing::Subscriber> Layer<S> for Outages {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut of_backlog = OfBacklog(false);
        event.record(&mut of_backlog);
        let began = *event.metadata().level() == tracing::Level::WARN;
        let ended = *event.metadata().level() == tracing::Level::INFO;
        if of_backlog.0 && (began || ended) {
            self.0[usize::from(ended)].fetch_add(1, Ordering::SeqCst);
        }
    }
}

pub(crate) async fn an_outage_is_logged_when_it_begins_and_when_it_ends(metrics: &Metrics) {
    let outages = Outages::default();
    let subscriber = tracing_subscriber::registry().with(outages.clone());
    let _installed = tracing::subscriber::set_default(subscriber);
    let world = World::new();
    let (fails, tries) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let store = world.store.clone().with_faults({
        let (fails, tries) = (Arc::clone(&fails), Arc::clone(&tries));
        move |operation| {
            if operation != "count_due" {
                return Fault::None;
            }
            tries.fetch_add(1, Ordering::SeqCst);
            match fails.load(Ordering::SeqCst) {
                true => Fault::ErrorBeforeCommit,
                false => Fault::None,
            }
        }
    });
    world
        .store
        .enqueue(&[NewJob::new("mail", &()).queue("mail")])
        .await
        .unwrap();
    let builder = world.builder_on(store).queues(["elsewhere"]);
    let node = Started::new(builder.measured_queues(["mail"]).build().unwrap());
    let passes = async |count| {
        let until = tries.load(Ordering::SeqCst) + count;
        while tries.load(Ordering::SeqCst) < until {
            sleep(SECOND).await;
        }
        sleep(SECOND).await;
    };
    let due = || metrics.sum(QUEUE_DUE, &[]);
    let logged = || {
        outages
            .0
            .each_ref()
            .map(|lines| lines.load(Ordering::SeqCst))
    };
    passes(1).await;
    assert_eq!((due(), logged()), (1.0, [0, 0]));
    for outage in 1..=2 {
        fails.store(true, Ordering::SeqCst);
        passes(1).await;
        assert_eq!((due(), logged()), (1.0, [outage, outage - 1]));
        passes(1).await;
        assert_eq!((due(), metrics.sum(QUEUE_OLDEST_DUE, &[])), (0.0, 0.0));
        passes(4).await;
        assert_eq!((due(), logged()), (0.0, [outage, outage - 1]));
        fails.store(false, Ordering::SeqCst);
        passes(1).await;
        assert_eq!((due(), logged()), (1.0, [outage, outage]));
    }
    node.stop().await.unwrap();
}

pub(crate) async fn definitions_of_a_newer_release_are_met(metrics: &Metrics) {
    let world = World::new();
    let builder = Ratchet::builder(Arc::new(Layered::new(Old(world.store.clone()))));
    let builder = builder.register::<Scripted>().state(Scripts::default());
    let node = Started::new(builder.build().unwrap());
    let job = world.job("never", |_| async { Ok(()) });
    let often = Recurring::every(SECOND).job(job).named("often");
    node.node.client().recurring().put(often).await.unwrap();
    sleep(10 * SECOND).await;
    assert!(metrics.sum(RECURRING_UNREADABLE, &[]) >= 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn what_is_old_is_done_away_with(metrics: &Metrics) {
    const HOUR: Duration = Duration::from_secs(3_600);
    let mut world = World::new();
    let clock = ManualClock::running(time::wall_clock());
    world.store = MemoryStore::with_clock(clock.clone());
    let retention = Retention::all(Retain::Delete(HOUR))
        .failed(Retain::Archive(HOUR))
        .archive(Some(2 * HOUR));
    let build = || {
        let strict = RateLimit::<Mail>::per_second(10).strict();
        let builder = world.builder().retention(retention.clone());
        builder
            .register::<Mail>()
            .rate_limit(strict)
            .build()
            .unwrap()
    };
    let node = Started::new(build());
    let client = node.node.client();
    let batch = client.create_batch().await.unwrap();
    let jobs: [NewJob; 4] = [
        world.job("succeeds", |_| async { Ok(()) }),
        world.job("succeeds", |_| async { Ok(()) }).in_batch(batch),
        world.job("fails", |_| async { Err::<(), _>(JobError::discard("no")) }),
        Mail::to_all(),
    ];
    for answer in client.enqueue_all(&jobs).await.unwrap() {
        world.ended(answer.id()).await;
    }
    client.close_batch(batch).await.unwrap();
    node.stop().await.unwrap();
    clock.advance(26 * HOUR);
    let node = Started::new(build());
    sleep(300 * SECOND).await;
    let rows = |what| metrics.sum(MAINTENANCE_ROWS, &[("what", what)]);
    let all = [
        "jobs_deleted",
        "jobs_archived",
        "archive_deleted",
        "batches_deleted",
        "rates_forgotten",
        "nodes_forgotten",
    ];
    assert_eq!(all.map(rows), [3.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert!(metrics.values(MAINTENANCE, &[]).len() >= 4);
    assert!(metrics.values(RECLAIM, &[]).len() >= 40);
    node.stop().await.unwrap();
}

pub(crate) async fn signals_that_do_not_come(metrics: &Metrics) {
    let world = World::new();
    let node = world.start();
    let waits = world.job("waits", |_| async { Ok(()) });
    let id = world.enqueue(waits.wait_for("s", 10 * SECOND)).await;
    world.ended(id).await;
    assert_eq!(metrics.sum(SIGNALS_EXPIRED, &[]), 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn jobs_that_expire(metrics: &Metrics) {
    let world = World::new();
    let job = world.job("late", |_| async { Ok(()) });
    let claimed = world.enqueue(job.another().expires_in(SECOND)).await;
    sleep(SECOND).await;
    // The first claim may come before the first pass, or after it.
    let node = world.start();
    world.ended(claimed).await;
    let settled = metrics.sum(JOBS_SETTLED, &[("outcome", "expired")]);
    let passed = metrics.sum(JOBS_EXPIRED, &[]);
    assert_eq!(settled + passed, 1.0);
    let waits = world.enqueue(job.queue("other").capability("none").expires_in(SECOND));
    let waits = waits.await;
    world.ended(waits).await;
    assert_eq!(metrics.sum(JOBS_EXPIRED, &[]), passed + 1.0);
    node.stop().await.unwrap();
}

/// A store that returns every claimed definition as unreadable, as to a node of an older release.
#[derive(Debug)]
struct Old(MemoryStore);

#[async_trait]
impl StoreLayer for Old {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        let mut due = self.0.claim_due_recurring(request).await?;
        due.unreadable = due.definitions.len();
        due.definitions.clear();
        Ok(due)
    }
}

pub(crate) async fn what_alerts_watch_is_there_before_anything_happens(metrics: &Metrics) {
    let world = World::new();
    let node = Started::new(world.builder_on(world.store.clone()).build().unwrap());
    sleep(10 * SECOND).await;
    let mut watched = 0;
    // This node has no daemon, so the counter of daemon failures is absent.
    for counter in counters_of_alerts().filter(|one| one.name != DAEMON_FAILURES.name) {
        let begun = !metrics.values(*counter, &[]).is_empty();
        assert!(begun, "expected {} to be recorded", counter.name);
        watched += 1;
    }
    assert!(watched > 10, "{watched}");
    let failed = [("kind", "scripted"), ("outcome", "failed")];
    let failed = metrics.values(JOBS_SETTLED, &failed);
    assert!(!failed.is_empty() && failed.iter().all(|count| *count == 0.0));
    node.stop().await.unwrap();
}
