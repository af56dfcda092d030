//! Circuit breakers: a kind whose attempts fail is no longer claimed, jobs that wait lose no
//! attempt, and one probe at a time finds out whether the kind works again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::model::{AttemptOutcome, JobFilter, PageRequest};
use ratchet_core::store::{JobStore, NodeStore};
use ratchet_core::{
    BreakerState, CircuitBreaker, Job, JobContext, JobError, JobId, JobRecord, JobResult, JobState,
    NewJob, NodeBuilder, Pool, Requires, RetryPolicy,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);

/// The service that the jobs call.
#[derive(Clone)]
struct Provider(Arc<Inner>);

struct Inner {
    down: AtomicBool,
    calls: Mutex<Vec<Instant>>,
    running: AtomicUsize,
    most: AtomicUsize,
    /// Each call takes a permit of it and keeps it.
    answers: Semaphore,
}

impl Provider {
    /// Creates a service that fails each call at once.
    fn down() -> Self {
        Self(Arc::new(Inner {
            down: AtomicBool::new(true),
            calls: Mutex::default(),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            answers: Semaphore::new(Semaphore::MAX_PERMITS),
        }))
    }

    fn set_down(&self, down: bool) {
        self.0.down.store(down, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.0.calls.lock().unwrap().len()
    }

    async fn call(&self) -> Result<(), JobError> {
        let inner = &self.0;
        inner
            .calls
            .lock()
            .unwrap()
            .push(ratchet_core::time::monotonic());
        let running = inner.running.fetch_add(1, Ordering::SeqCst) + 1;
        inner.most.fetch_max(running, Ordering::SeqCst);
        inner.answers.acquire().await.unwrap().forget();
        inner.running.fetch_sub(1, Ordering::SeqCst);
        match inner.down.load(Ordering::SeqCst) {
            true => Err("the provider is down".into()),
            false => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Charge;

impl Job for Charge {
    const KIND: &'static str = "charge";
    const ALIASES: &'static [&'static str] = &["bill"];
    type Output = ();

    fn defaults(job: NewJob) -> NewJob {
        // A failed job comes back after the end of each test.
        job.retry(RetryPolicy::fixed(5, 100_000 * SECOND))
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        ctx.state::<Provider>().call().await?;
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Provider>()
    }
}

/// Opens after 10 failures, for 30 s to 33 s.
fn breaker() -> CircuitBreaker {
    CircuitBreaker::new().min_attempts(10)
}

/// Returns the builder of a node with four slots, which runs `Charge` jobs with this breaker.
fn builder(world: &World, provider: &Provider, breaker: CircuitBreaker) -> NodeBuilder {
    world
        .builder()
        .register::<Charge>()
        .state(provider.clone())
        .concurrency(4)
        .circuit_breaker::<Charge>(breaker)
}

fn start(world: &World, provider: &Provider) -> Started {
    Started::new(builder(world, provider, breaker()).build().unwrap())
}

async fn enqueue(world: &World, count: usize) -> Vec<JobId> {
    let jobs: Vec<NewJob> = (0..count).map(|_| Charge.into_job()).collect();
    let enqueued = world.store.enqueue(&jobs).await.unwrap();
    enqueued.iter().map(|one| one.id()).collect()
}

async fn all(world: &World) -> Vec<JobRecord> {
    let page = PageRequest::first(10_000);
    world
        .store
        .list(&JobFilter::all(), &page)
        .await
        .unwrap()
        .jobs
}

fn state(node: &Started) -> BreakerState {
    node.node.breakers()[0].state
}

/// Waits until the breaker of the node has this state.
async fn until(node: &Started, wanted: BreakerState) {
    for _ in 0..100_000 {
        if state(node) == wanted {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!(
        "expected the breaker to become {wanted:?}, found {:?}",
        state(node)
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_costs_no_attempts_and_one_probe_closes_it() {
    let (world, provider) = (World::new(), Provider::down());
    let ids = enqueue(&world, 200).await;
    let node = start(&world, &provider);
    until(&node, BreakerState::Open).await;
    sleep(5 * SECOND).await;
    let failed = provider.calls();
    // Bodies that ran beside the tenth failure may have failed too.
    assert!((10..=13).contains(&failed), "{failed} calls");
    let jobs = all(&world).await;
    let attempts: u32 = jobs.iter().map(|job| job.attempts).sum();
    assert_eq!(attempts as usize, failed);
    assert!(
        jobs.iter()
            .all(|job| job.state == JobState::Pending && job.crash_count == 0)
    );
    // Other kinds run, and no poller claims the jobs that wait.
    let other = world
        .enqueue(world.job("other", |_| async { Ok(()) }))
        .await;
    assert_eq!(world.ended(other).await.state, JobState::Succeeded);
    let claimed = node.node.stats().claimed;
    sleep(20 * SECOND).await;
    assert_eq!(node.node.stats().claimed, claimed);
    assert_eq!(provider.calls(), failed);

    // The first probe fails, so the next one comes after twice the time.
    sleep(15 * SECOND).await;
    assert_eq!(provider.calls(), failed + 1);
    assert_eq!(state(&node), BreakerState::Open);
    provider.set_down(false);
    sleep(40 * SECOND).await;
    assert_eq!(provider.calls(), failed + 1);
    until(&node, BreakerState::Closed).await;
    for id in &ids {
        let job = world.read(*id).await;
        if job.attempts == 0 {
            world.ended(*id).await;
        }
    }
    assert_eq!(
        provider.calls(),
        200,
        "expected each job to have had one attempt"
    );
    for job in all(&world).await {
        // A job is claimed for its attempt, and perhaps once before, when the breaker opened.
        assert!(job.claim_seq <= 3, "{} claims", job.claim_seq);
        let history = world.store_history(job.id).await;
        let released =
            |end: &&ratchet_core::model::Attempt| end.outcome == AttemptOutcome::Released;
        let ends = history.len() - history.iter().filter(released).count();
        assert_eq!(ends, 1);
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_a_probe_runs_no_other_job_does() {
    let (world, provider) = (World::new(), Provider::down());
    enqueue(&world, 100).await;
    let node = start(&world, &provider);
    until(&node, BreakerState::Open).await;
    sleep(SECOND).await;
    let failed = provider.calls();
    provider.set_down(false);
    provider.0.answers.forget_permits(Semaphore::MAX_PERMITS);
    provider.0.most.store(0, Ordering::SeqCst);
    // The probe begins after 33 s at the latest, and runs for longer than the breaker was open.
    sleep(150 * SECOND).await;
    assert_eq!(provider.calls(), failed + 1);
    assert_eq!(provider.0.most.load(Ordering::SeqCst), 1);
    assert_eq!(state(&node), BreakerState::HalfOpen);
    let before = all(&world).await;
    let churn: u64 = before.iter().map(|job| job.claim_seq).sum();
    assert!(
        churn < 100,
        "expected few claims while the probe runs, found {churn}"
    );
    provider.0.answers.add_permits(1_000);
    until(&node, BreakerState::Closed).await;
    sleep(5 * SECOND).await;
    assert_eq!(provider.calls(), 100);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_cancelled_is_followed_by_another() {
    let (world, provider) = (World::new(), Provider::down());
    enqueue(&world, 100).await;
    let node = start(&world, &provider);
    until(&node, BreakerState::Open).await;
    sleep(SECOND).await;
    let failed = provider.calls();
    provider.set_down(false);
    provider.0.answers.forget_permits(Semaphore::MAX_PERMITS);
    sleep(40 * SECOND).await;
    let jobs = all(&world).await;
    let probe = jobs.iter().find(|job| job.state == JobState::Running);
    let client = node.node.client();
    client.cancel(probe.unwrap().id).await.unwrap();
    // The next heartbeat tells the node of the cancellation.
    sleep(10 * SECOND).await;
    provider.0.answers.add_permits(1_000);
    sleep(10 * SECOND).await;
    assert_eq!(provider.calls(), failed + 1);
    assert_eq!(state(&node), BreakerState::Open);
    until(&node, BreakerState::Closed).await;
    assert!(provider.calls() > failed + 1);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ends_that_show_nothing_about_the_service_open_no_breaker() {
    let world = World::new();
    let ended = Arc::new(AtomicUsize::new(0));
    let mut jobs = Vec::new();
    for name in ["discard", "snooze", "cancel"] {
        jobs.extend((0..10).map(|_| {
            let ended = Arc::clone(&ended);
            world.job(name, move |_| {
                ended.fetch_add(1, Ordering::SeqCst);
                async move {
                    Err::<(), _>(match name {
                        "discard" => JobError::discard("bad input"),
                        "snooze" => JobError::snooze(100_000 * SECOND),
                        _ => JobError::cancel(),
                    })
                }
            })
        }));
    }
    world.store.enqueue(&jobs).await.unwrap();
    let breaker = CircuitBreaker::new().min_attempts(1);
    let node = world
        .builder()
        .circuit_breaker::<crate::kit::Scripted>(breaker);
    let node = Started::new(node.build().unwrap());
    sleep(10 * SECOND).await;
    assert_eq!(ended.load(Ordering::SeqCst), 30);
    let info = node.node.breakers().remove(0);
    assert_eq!((info.state, info.attempts), (BreakerState::Closed, 0));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_open_a_breaker() {
    for (name, how) in [("panics", 0), ("hangs", 1)] {
        let world = World::new();
        let new = |_| {
            let job = world.job(name, move |_| async move {
                match how {
                    0 => panic!("a test"),
                    _ => std::future::pending::<JobResult<()>>().await,
                }
            });
            job.retry(RetryPolicy::fixed(5, 100_000 * SECOND))
                .timeout(SECOND)
        };
        let jobs: Vec<NewJob> = (0..20).map(new).collect();
        world.store.enqueue(&jobs).await.unwrap();
        let breaker = CircuitBreaker::new().min_attempts(4);
        let node = world.builder().concurrency(2);
        let node = node.circuit_breaker::<crate::kit::Scripted>(breaker);
        let node = Started::new(node.build().unwrap());
        sleep(20 * SECOND).await;
        assert_eq!(state(&node), BreakerState::Open, "{name}");
        let begun = all(&world)
            .await
            .iter()
            .filter(|job| job.attempts > 0)
            .count();
        assert!((4..=5).contains(&begun), "{name}: {begun} attempts");
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_stops_all_names_of_its_kind_in_all_pools() {
    let (world, provider) = (World::new(), Provider::down());
    let of = |kind: &str, queue: &str| {
        let retry = RetryPolicy::fixed(5, 100_000 * SECOND);
        NewJob::new(kind, &()).queue(queue).retry(retry)
    };
    let mut jobs = Vec::new();
    for _ in 0..50 {
        jobs.extend([
            of("charge", "a"),
            of("bill", "a"),
            of("charge", "b"),
            of("bill", "b"),
        ]);
    }
    world.store.enqueue(&jobs).await.unwrap();
    let pool = Pool::new("b").queues(["b"]).concurrency(4);
    let node = builder(&world, &provider, breaker()).pool(pool);
    let node = Started::new(node.build().unwrap());
    until(&node, BreakerState::Open).await;
    sleep(5 * SECOND).await;
    let failed = provider.calls();
    assert!((10..=17).contains(&failed), "{failed} calls");
    let claimed = node.node.stats().claimed;
    sleep(20 * SECOND).await;
    assert_eq!(node.node.stats().claimed, claimed);
    provider.set_down(false);
    sleep(20 * SECOND).await;
    assert_eq!(state(&node), BreakerState::Closed);
    assert_eq!(provider.calls(), 200);
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_node_learns_by_itself_and_publishes_what_it_knows() {
    let (world, provider) = (World::new(), Provider::down());
    enqueue(&world, 200).await;
    let nodes = [start(&world, &provider), start(&world, &provider)];
    for node in &nodes {
        until(node, BreakerState::Open).await;
    }
    sleep(10 * SECOND).await;
    let failed = provider.calls();
    assert!((20..=26).contains(&failed), "{failed} calls");
    let published = async || -> Vec<usize> {
        let nodes = world.store.nodes().await.unwrap();
        let breakers = nodes.iter().map(|node| node.profile.open_breakers.len());
        breakers.collect()
    };
    assert_eq!(published().await, [1, 1]);
    provider.set_down(false);
    sleep(60 * SECOND).await;
    assert_eq!(published().await, [0, 0]);
    stop_all(nodes).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_makes_no_more_calls_because_a_breaker_is_not_closed() {
    let (world, provider) = (World::new(), Provider::down());
    enqueue(&world, 10).await;
    let node = start(&world, &provider);
    until(&node, BreakerState::Open).await;
    // No job is due when the first probe is.
    sleep(60 * SECOND).await;
    assert_eq!(state(&node), BreakerState::HalfOpen);
    let calls = async |node: &Started| {
        let before = node.node.stats().claim_calls;
        sleep(600 * SECOND).await;
        node.node.stats().claim_calls - before
    };
    let with_breaker = calls(&node).await;
    provider.set_down(false);
    enqueue(&world, 50).await;
    sleep(10 * SECOND).await;
    assert_eq!(state(&node), BreakerState::Closed);
    assert_eq!(provider.calls(), 60);
    sleep(60 * SECOND).await;
    let without = calls(&node).await;
    assert!(
        with_breaker <= without + 5,
        "{with_breaker} calls, {without} without"
    );
    node.stop().await.unwrap();
}

#[test]
fn breakers_that_cannot_work_are_refused() {
    let (world, provider) = (World::new(), Provider::down());
    let refused = |builder: NodeBuilder| builder.build().unwrap_err().to_string();
    let unknown = world.builder().circuit_breaker::<Charge>(breaker());
    let problem = "charge has a circuit breaker, but no job of this kind is registered";
    assert!(refused(unknown).contains(problem));
    let twice = builder(&world, &provider, breaker()).circuit_breaker::<Charge>(breaker());
    assert!(refused(twice).contains("charge has two circuit breakers; declare one"));
    let odd = builder(&world, &provider, breaker().failure_percent(0));
    let problem = "the circuit breaker of charge is invalid: failure_percent is 0";
    assert!(refused(odd).contains(problem));
}
