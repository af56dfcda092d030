use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::metrics::*;
use ratchet_core::store::JobStore;
use ratchet_core::{
    CircuitBreaker, Job, JobContext, JobError, JobId, JobResult, JobState, NewJob, Pool, RateLimit,
    RetryPolicy,
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::kit::{Scripted, Started, World};
use crate::recorder::Metrics;

const SECOND: Duration = Duration::from_secs(1);
const SCRIPTED: (&str, &str) = ("kind", "scripted");
const DEFAULT: (&str, &str) = ("pool", "default");

/// A job type for tests of rate limits, which apply to the kind or to each tenant.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mail {
    tenant: Option<String>,
}

impl Job for Mail {
    const KIND: &'static str = "mail";
    type Output = ();

    async fn run(self, _: JobContext) -> JobResult<()> {
        Ok(())
    }
}

impl Mail {
    pub(crate) fn to_all() -> NewJob {
        Self { tenant: None }.into_job()
    }

    fn of(tenant: &str) -> NewJob {
        let tenant = Some(tenant.to_owned());
        Self { tenant }.into_job()
    }
}

pub(crate) async fn outcomes_are_counted_by_kind_and_pool(metrics: &Metrics) {
    let world = World::new();
    let builder = world
        .builder()
        .pool(Pool::new("small").queues(["small"]).concurrency(1));
    let node = Started::new(builder.build().unwrap());
    let once = RetryPolicy::never();
    let jobs = [
        world.job("succeeds", |_| async { Ok(()) }),
        world.job("fails twice", |_| async { Err::<(), _>("no".into()) }),
        world.job("panics", |_| async {
            if true {
                panic!("planned");
            }
            Ok(())
        }),
        world.job("is late", |_| async {
            sleep(60 * SECOND).await;
            Ok(())
        }),
        world.job("cancels", |_| async { Err::<(), _>(JobError::cancel()) }),
        world.job("snoozes", |ctx| async move {
            if ctx.checkpoint::<bool>()?.is_some() {
                return Ok(());
            }
            ctx.save_checkpoint(&true).await?;
            Err(JobError::snooze(SECOND))
        }),
        NewJob::new("scripted", &1),
    ];
    let [fine, fails, panics, late, cancels, snoozes, unreadable] = jobs;
    let jobs = [
        fine.queue("small").unique_key("one"),
        fails.retry(RetryPolicy::fixed(2, SECOND)),
        panics.retry(once),
        late.retry(once).timeout(2 * SECOND),
        cancels,
        snoozes,
        unreadable,
        world
            .job("succeeds", |_| async { Ok(()) })
            .unique_key("one"),
        NewJob::new("unheard of", &()),
    ];
    let client = node.node.client();
    let answers = client.enqueue_all(&jobs).await.unwrap();
    for answer in &answers[..7] {
        world.ended(answer.id()).await;
    }
    let enqueued =
        |kind, outcome| metrics.sum(JOBS_ENQUEUED, &[("kind", kind), ("outcome", outcome)]);
    assert_eq!(enqueued("scripted", "created"), 7.0);
    assert_eq!(enqueued("scripted", "duplicate"), 1.0);
    assert_eq!(enqueued("unheard of", "created"), 1.0);
    let settled = |outcome| metrics.sum(JOBS_SETTLED, &[SCRIPTED, DEFAULT, ("outcome", outcome)]);
    let outcomes = [
        "succeeded",
        "retried",
        "failed",
        "snoozed",
        "released",
        "cancelled",
    ];
    // Four jobs failed: one after two attempts, one by a panic, one by its timeout, and one because
    // its payload does not decode.
    assert_eq!(outcomes.map(settled), [1.0, 1.0, 4.0, 1.0, 0.0, 1.0]);
    let small = [SCRIPTED, ("pool", "small")];
    assert_eq!(metrics.sum(JOBS_SETTLED, &small), 1.0);
    assert_eq!(metrics.sum(JOBS_BEGUN, &small), 1.0);
    let of = [SCRIPTED, DEFAULT];
    assert_eq!(metrics.sum(JOBS_BEGUN, &of), 7.0);
    assert_eq!(metrics.sum(JOBS_CLAIMED, &[DEFAULT]), 8.0);
    assert_eq!(metrics.sum(JOB_PANICS, &of), 1.0);
    assert_eq!(metrics.sum(JOB_TIMEOUTS, &of), 1.0);
    assert_eq!(metrics.sum(JOBS_UNREADABLE, &of), 1.0);
    let mut ran = metrics.values(BODY, &of);
    ran.sort_by(f64::total_cmp);
    assert_eq!((ran.len(), ran[6]), (7, 2.0));
    assert_eq!(metrics.sum(JOBS_RUNNING, &[]), 0.0);
    // Each of the nine claims changes the gauge twice, once up and once down.
    assert_eq!(metrics.values(JOBS_RUNNING, &[]).len(), 18);
    assert_eq!(metrics.sum(SETTLE_BATCH, &[]), 9.0);
    assert_eq!(metrics.sum(REPORTS, &[("outcome", "applied")]), 1.0);
    // Some claim calls found fewer jobs than they requested, and the last ones found none.
    assert!(metrics.sum(CLAIM_CALLS, &[DEFAULT, ("result", "partial")]) >= 1.0);
    assert!(metrics.sum(CLAIM_CALLS, &[DEFAULT, ("result", "empty")]) >= 1.0);
    let delays = metrics.values(POLL_DELAY, &[DEFAULT]);
    assert!(
        delays.iter().all(|delay| (0.0..=1.0).contains(delay)),
        "{delays:?}"
    );
    node.stop().await.unwrap();
}

pub(crate) async fn a_cancelled_body_counts_as_cancelled_whatever_it_returns(metrics: &Metrics) {
    let world = World::new();
    let fine = world.job("goes on", |ctx| async move {
        ctx.cancelled().await;
        Ok(())
    });
    let fails = world.job("gives up", |ctx| async move {
        ctx.cancelled().await;
        Err::<(), _>("interrupted".into())
    });
    let node = Started::new(world.builder().build().unwrap());
    let client = node.node.client();
    for job in [fine, fails] {
        let id = client.enqueue(job).await.unwrap().id();
        world.until(id, |job| job.state == JobState::Running).await;
        client.cancel(id).await.unwrap();
        assert_eq!(world.ended(id).await.state, JobState::Cancelled);
    }
    node.stop().await.unwrap();
    let settled = |outcome| metrics.sum(JOBS_SETTLED, &[("outcome", outcome)]);
    let outcomes = ["succeeded", "retried", "failed", "cancelled"];
    assert_eq!(outcomes.map(settled), [0.0, 0.0, 0.0, 2.0]);
}

pub(crate) async fn waiting_is_measured_from_when_a_job_was_due(metrics: &Metrics) {
    let world = World::new();
    let mut ids = Vec::new();
    for number in 0..2 {
        let job = world.job(&number.to_string(), |_| async {
            sleep(5 * SECOND).await;
            Ok(())
        });
        ids.push(world.enqueue(job).await);
    }
    sleep(30 * SECOND).await;
    // Both jobs are already due, and the second one waits until the only slot is free.
    let builder = world.builder().concurrency(1).prefetch(0);
    let node = Started::new(builder.build().unwrap());
    for id in ids {
        world.ended(id).await;
    }
    let waits = metrics.values(JOB_WAIT, &[SCRIPTED, DEFAULT]);
    assert_eq!(waits.len(), 2);
    assert!((30.0..31.0).contains(&waits[0]), "{waits:?}");
    assert!((35.0..36.0).contains(&waits[1]), "{waits:?}");
    assert!(metrics.sum(CLAIM_CALLS, &[DEFAULT, ("result", "full")]) >= 2.0);
    node.stop().await.unwrap();
}

pub(crate) async fn a_body_that_stalls_is_lost(metrics: &Metrics) {
    let world = World::new();
    let first = AtomicBool::new(true);
    let stalls = world.job("stalls", move |_| {
        let hangs = first.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                sleep(3_600 * SECOND).await;
            }
            Ok(())
        }
    });
    let id = world.enqueue(stalls.stall_timeout(5 * SECOND)).await;
    let node = world.start();
    world.ended(id).await;
    assert_eq!(metrics.sum(JOB_STALLS, &[SCRIPTED, DEFAULT]), 1.0);
    assert_eq!(metrics.sum(CLAIMS_LOST, &[DEFAULT, ("during", "run")]), 1.0);
    assert_eq!(metrics.sum(CLAIMS_RECLAIMED, &[("reason", "stalled")]), 1.0);
    node.stop().await.unwrap();
}

pub(crate) async fn what_may_not_begin_is_put_off(metrics: &Metrics) {
    let world = World::new();
    let put_off = |reason| metrics.sum(JOBS_PUT_OFF, &[("reason", reason)]);
    // The first limit applies to all jobs of a kind.
    let builder = world.builder().register::<Mail>();
    let limited = builder.rate_limit::<Mail>(RateLimit::per_second(1));
    let node = Started::new(limited.build().unwrap());
    let mails = [Mail::to_all(), Mail::to_all(), Mail::to_all()];
    for mail in node.node.client().enqueue_all(&mails).await.unwrap() {
        world.ended(mail.id()).await;
    }
    // Two jobs were put off: the one that the limiter refused, and the next one, about which the
    // limiter was not asked.
    assert_eq!(put_off("rate_limit"), 2.0);
    let waits = metrics.values(RATE_LIMIT_WAIT, &[("kind", "mail")]);
    assert!(
        waits.iter().all(|wait| *wait > 0.0 && *wait <= 1.0),
        "{waits:?}"
    );
    node.stop().await.unwrap();
    // The second limit applies to the jobs of each key separately.
    let by_tenant = RateLimit::<Mail>::per_second(1).by(|mail: &Mail| mail.tenant.clone());
    let builder = world.builder().register::<Mail>().rate_limit(by_tenant);
    let node = Started::new(builder.build().unwrap());
    let mails = [Mail::of("a"), Mail::of("a")];
    for mail in node.node.client().enqueue_all(&mails).await.unwrap() {
        world.ended(mail.id()).await;
    }
    assert_eq!(put_off("rate_limit_key"), 1.0);
    // The next job has the payload version of the next release.
    let newer = NewJob::new("mail", &serde_json::json!({ "tenant": null })).payload_version(2);
    let newer = world.enqueue(newer).await;
    world.until(newer, |job| job.claim_seq > 1).await;
    assert!(put_off("newer_payload") >= 1.0);
    node.stop().await.unwrap();
    // The third limit is strict, and the store call of its limiter fails, so no job may begin.
    let store = world
        .store
        .clone()
        .with_faults(|operation| match operation {
            "take" => Fault::ErrorBeforeCommit,
            _ => Fault::None,
        });
    let strict = RateLimit::<Mail>::per_second(1).strict();
    let builder = world
        .builder_on(store)
        .register::<Mail>()
        .rate_limit(strict);
    let node = Started::new(builder.build().unwrap());
    node.node.enqueue(Mail::to_all()).await.unwrap();
    sleep(5 * SECOND).await;
    assert!(put_off("limiter_failed") >= 1.0);
    assert!(
        !metrics
            .values(STORE_BACKOFF, &[("loop", "limiter")])
            .is_empty()
    );
    node.stop().await.unwrap();
}

pub(crate) async fn a_circuit_breaker_opens_and_closes(metrics: &Metrics) {
    let world = World::new();
    let down = Arc::new(AtomicBool::new(true));
    let new = |_| {
        let down = Arc::clone(&down);
        world.job("charge", move |_| {
            let down = down.load(Ordering::SeqCst);
            async move {
                match down {
                    true => Err(JobError::from("down")),
                    false => Ok(()),
                }
            }
        })
    };
    let breaker = CircuitBreaker::new().min_attempts(3).open_for(30 * SECOND);
    let builder = world.builder().concurrency(1);
    let node = builder
        .circuit_breaker::<Scripted>(breaker)
        .build()
        .unwrap();
    let node = Started::new(node);
    let jobs: Vec<NewJob> = (0..20).map(new).collect();
    world.store.enqueue(&jobs).await.unwrap();
    let open = || metrics.sum(BREAKERS_OPEN, &[("kind", "scripted")]);
    let changes = |change| metrics.sum(BREAKER_CHANGES, &[("change", change)]);
    sleep(20 * SECOND).await;
    assert_eq!((open(), changes("opened")), (1.0, 1.0));
    sleep(20 * SECOND).await;
    assert_eq!((open(), changes("reopened")), (1.0, 1.0));
    down.store(false, Ordering::SeqCst);
    sleep(80 * SECOND).await;
    assert_eq!((open(), changes("closed")), (0.0, 1.0));
    node.stop().await.unwrap();
}

pub(crate) async fn jobs_with_permits_wait_apart(metrics: &Metrics) {
    let world = World::new();
    let nodes = [world.start(), world.start()];
    sleep(20 * SECOND).await;
    let client = nodes[0].node.client();
    client.set_permits("api", 1).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..3 {
        let job = world.job(&number.to_string(), |_| async {
            sleep(SECOND).await;
            Ok(())
        });
        ids.push(world.enqueue(job.permit("api")).await);
    }
    for id in ids {
        world.ended(id).await;
    }
    let waits = metrics.values(PERMIT_WAIT, &[DEFAULT]);
    assert_eq!(waits.len(), 3);
    assert!(waits.iter().any(|wait| *wait >= 2.0), "{waits:?}");
    assert!(metrics.sum(PERMIT_RESTS, &[DEFAULT]) >= 1.0);
    for node in nodes {
        node.stop().await.unwrap();
    }
}

pub(crate) async fn prefetched_claims_are_held_and_handed_back(metrics: &Metrics) {
    let world = World::new();
    // The quick jobs run first, so that the node begins to prefetch. The slow jobs follow.
    let quick = world.job("quick", |_| async {
        sleep(Duration::from_millis(1)).await;
        Ok(())
    });
    let quick: Vec<NewJob> = (0..2_000).map(|_| quick.another()).collect();
    let mut slow = Vec::new();
    for number in 0..300 {
        slow.push(world.job(&number.to_string(), |_| async {
            sleep(60 * SECOND).await;
            Ok(())
        }));
    }
    let builder = world.builder().concurrency(4).prefetch_ttl(20 * SECOND);
    let node = Started::new(builder.build().unwrap());
    for jobs in [&quick, &slow] {
        node.node.client().enqueue_all(jobs).await.unwrap();
    }
    sleep(3 * SECOND).await;
    // The gauge is set although no caller has read the node's statistics.
    assert!(metrics.sum(CLAIMS_WAITING, &[DEFAULT]) > 0.0);
    sleep(37 * SECOND).await;
    let expired = metrics.sum(PREFETCH_EXPIRED, &[DEFAULT]);
    assert!(expired > 0.0, "nothing was prefetched");
    assert_eq!(metrics.sum(CLAIMS_HANDED_BACK, &[DEFAULT]), expired);
    assert_eq!(metrics.sum(CLAIMS_WAITING, &[DEFAULT]), 0.0);
    assert_eq!(metrics.sum(JOBS_RUNNING, &[DEFAULT]), 4.0);
    node.kill().await;
    assert_eq!(metrics.sum(JOBS_RUNNING, &[DEFAULT]), 0.0);
    assert_eq!(metrics.sum(CLAIMS_WAITING, &[DEFAULT]), 0.0);
}

pub(crate) async fn a_job_that_kills_its_nodes_is_a_suspect_and_then_a_dead_letter(
    metrics: &Metrics,
) {
    let world = World::new();
    let mut ids: Vec<JobId> = Vec::new();
    for number in 0..2 {
        let kills = world.job(&number.to_string(), |_| async {
            sleep(3_600 * SECOND).await;
            Ok(())
        });
        ids.push(world.enqueue(kills).await);
    }
    let begin = || Started::new(world.builder().label("doomed").build().unwrap());
    while world.read(ids[0]).await.state != JobState::Failed {
        let doomed = begin();
        sleep(3 * SECOND).await;
        doomed.kill().await;
    }
    assert!(metrics.sum(SUSPECTS_BEGUN, &[DEFAULT]) >= 2.0);
    assert!(metrics.sum(JOBS_PUT_OFF, &[DEFAULT, ("reason", "suspect")]) >= 1.0);
    assert_eq!(metrics.sum(JOBS_EXHAUSTED, &[]), 1.0);
    assert!(metrics.sum(CLAIMS_RECLAIMED, &[("reason", "owner_lost")]) >= 3.0);
}

/// Returns a job whose body reports its progress every second, until `ends` is set.
pub(crate) fn talks(world: &World, ends: &Arc<AtomicBool>) -> NewJob {
    let ends = Arc::clone(ends);
    world.job("talks", move |ctx| {
        let ends = Arc::clone(&ends);
        async move {
            while !ends.load(Ordering::SeqCst) {
                ctx.progress(50, "half");
                sleep(SECOND).await;
            }
            Ok(())
        }
    })
}
