//! Rate limits: bodies begin no faster than allowed, and a job that waits for the limit loses no
//! attempt and is not lost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::limiter::{RateKey, RateLimiter};
use ratchet_core::memory::Fault;
use ratchet_core::model::{AttemptOutcome, FairScope, JobFilter, PageRequest, RateAnswer};
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, RateStore, Store, StoreInfo, VersionStore,
};
use ratchet_core::{
    BoxError, Job, JobContext, JobId, JobResult, JobState, MemoryStore, NewJob, NodeBuilder,
    Ratchet, Rate, RateLimit, Requires, Retain, Retention, StoreError, StoreErrorKind,
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::kit::{Started, World, stop_all};

const SECOND: Duration = Duration::from_secs(1);

/// The start time and the mail of each body that began.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(Instant, Mail)>>>);

impl Log {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn all(&self) -> Vec<(Instant, Mail)> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mail {
    tenant: Option<String>,
    number: usize,
}

impl Mail {
    fn of(tenant: &str, number: usize) -> Self {
        Self {
            tenant: Some(tenant.to_owned()),
            number,
        }
    }
}

impl Job for Mail {
    const KIND: &'static str = "mail";
    const ALIASES: &'static [&'static str] = &["post"];
    const VERSION: u32 = 2;
    type Output = ();

    /// Version 1 called the tenant `customer`.
    fn upcast(_: u32, mut stored: serde_json::Value) -> Result<serde_json::Value, BoxError> {
        stored["tenant"] = stored["customer"].take();
        Ok(stored)
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let log = ctx.state::<Log>();
        log.0
            .lock()
            .unwrap()
            .push((ratchet_core::time::monotonic(), self));
        Ok(())
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Log>()
    }
}

/// Returns the builder of a node that runs `Mail` jobs under this rate limit, and scripted jobs
/// without a limit.
fn builder(world: &World, store: &MemoryStore, log: &Log, limit: RateLimit<Mail>) -> NodeBuilder {
    world
        .builder_on(store.clone())
        .register::<Mail>()
        .state(log.clone())
        .rate_limit::<Mail>(limit)
}

fn start(world: &World, log: &Log, limit: RateLimit<Mail>) -> Started {
    Started::new(builder(world, &world.store, log, limit).build().unwrap())
}

async fn enqueue(world: &World, mails: impl IntoIterator<Item = Mail>) -> Vec<JobId> {
    let mut ids = Vec::new();
    for mail in mails {
        ids.push(world.enqueue(mail.into_job()).await);
    }
    ids
}

fn mails(count: usize) -> impl Iterator<Item = Mail> {
    (0..count).map(|number| Mail {
        tenant: None,
        number,
    })
}

/// Returns how many bodies began within `until` after the first.
fn begun_within(log: &Log, until: Duration) -> usize {
    let all = log.all();
    let first = all[0].0;
    all.iter().filter(|(at, _)| *at - first < until).count()
}

#[tokio::test(start_paused = true)]
async fn ten_a_second_begin_and_a_burst_before_them_in_their_order_and_without_churn() {
    let world = World::new();
    let log = Log::default();
    let ids = enqueue(&world, mails(100)).await;
    let node = start(&world, &log, RateLimit::per_second(10).burst(20));
    sleep(SECOND).await;
    // The jobs that wait for the limit are pending again, without an attempt or a crash.
    for id in &ids[60..] {
        let job = world.read(*id).await;
        assert_eq!(
            (job.state, job.attempts, job.crash_count),
            (JobState::Pending, 0, 0)
        );
    }
    for id in &ids {
        world.ended(*id).await;
    }
    let first = begun_within(&log, SECOND);
    assert!(
        (29..=30).contains(&first),
        "expected 29 or 30 bodies to begin in the first second, found {first}"
    );
    for second in 1..8 {
        let begun = begun_within(&log, (second + 1) * SECOND) - begun_within(&log, second * SECOND);
        assert!(
            (9..=10).contains(&begun),
            "second {second}: expected 9 or 10 bodies to begin, found {begun}"
        );
    }
    let order: Vec<usize> = log.all().iter().map(|(_, mail)| mail.number).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
    let mut claims = 0;
    for id in &ids {
        let job = world.read(*id).await;
        assert_eq!((job.state, job.attempts), (JobState::Succeeded, 1));
        claims += job.claim_seq;
    }
    // Each job takes one claim, and a second one if it was claimed before the limit was known.
    assert!(
        claims <= 200,
        "expected at most 200 claims of 100 jobs, found {claims}"
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn other_kinds_go_on_while_one_has_to_wait() {
    let world = World::new();
    let log = Log::default();
    let waiting = enqueue(&world, mails(200)).await;
    let limit = RateLimit::per_hour(1);
    let node = builder(&world, &world.store, &log, limit).concurrency(1);
    let node = Started::new(node.build().unwrap());
    let mut others = Vec::new();
    for number in 0..50 {
        let job = world.job(&number.to_string(), |_| async { Ok(()) });
        others.push(world.enqueue(job).await);
    }
    sleep(2 * SECOND).await;
    for id in others {
        assert_eq!(world.read(id).await.state, JobState::Succeeded);
    }
    assert_eq!(log.len(), 1);
    // While the jobs wait, no poller claims them again and again.
    let before = node.node.stats().claimed;
    sleep(600 * SECOND).await;
    assert_eq!(node.node.stats().claimed, before);
    for id in &waiting[1..] {
        assert_eq!(world.read(*id).await.state, JobState::Pending);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_an_earlier_name_and_form_count_under_the_same_limit() {
    let by = |mail: &Mail| mail.tenant.clone();
    for limit in [RateLimit::per_hour(3), RateLimit::per_hour(3).by(by)] {
        let world = World::new();
        let log = Log::default();
        enqueue(&world, (0..2).map(|number| Mail::of("a", number))).await;
        for number in 2..5 {
            let old = serde_json::json!({ "customer": "a", "number": number });
            world.enqueue(NewJob::new("post", &old)).await;
        }
        let node = start(&world, &log, limit);
        sleep(600 * SECOND).await;
        assert_eq!(log.len(), 3);
        let (all, page) = (JobFilter::all(), PageRequest::first(9));
        for job in world.store.list(&all, &page).await.unwrap().jobs {
            assert!(job.claim_seq <= 3, "{} claims", job.claim_seq);
        }
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_limited_each_by_itself_and_none_waits_for_another() {
    let world = World::new();
    let log = Log::default();
    let limit = RateLimit::per_second(1).by(|mail: &Mail| mail.tenant.clone());
    let of_a = enqueue(&world, (0..20).map(|number| Mail::of("a", number))).await;
    let others = ["b", "c", "d"].map(|tenant| Mail::of(tenant, 0));
    enqueue(&world, others).await;
    let node = start(&world, &log, limit);
    sleep(SECOND / 2).await;
    let mut begun: Vec<String> = log
        .all()
        .into_iter()
        .filter_map(|(_, mail)| mail.tenant)
        .collect();
    begun.sort();
    assert_eq!(begun, ["a", "b", "c", "d"]);
    for id in &of_a {
        world.ended(*id).await;
    }
    let mut starts: Vec<Instant> = log
        .all()
        .into_iter()
        .filter(|(_, mail)| mail.tenant.as_deref() == Some("a"))
        .map(|(at, _)| at)
        .collect();
    starts.sort();
    let taken = starts[19] - starts[0];
    // There need not be a start in every second: a job that gets no start goes to the end of the
    // queue.
    assert!((19 * SECOND..40 * SECOND).contains(&taken), "{taken:?}");
    for pair in starts.windows(2) {
        assert!(pair[1] - pair[0] >= SECOND, "{pair:?}");
    }
    for id in of_a {
        let job = world.read(id).await;
        assert_eq!(job.attempts, 1);
        // Each job was delayed a few times at most, not once for every earlier job.
        assert!(job.claim_seq <= 8, "{} claims", job.claim_seq);
        let history = world.store_history(id).await;
        let (last, before) = history.split_last().unwrap();
        assert_eq!(last.outcome, AttemptOutcome::Succeeded);
        assert!(
            before
                .iter()
                .all(|end| end.outcome == AttemptOutcome::Snoozed)
        );
    }
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_strict_limit_is_one_for_all_nodes_and_a_local_one_is_each_node_s_own() {
    for (strict, expected) in [(true, 28..=30), (false, 57..=60)] {
        let world = World::new();
        let log = Log::default();
        enqueue(&world, mails(200)).await;
        let limit = || {
            let limit = RateLimit::per_second(10);
            if strict { limit.strict() } else { limit }
        };
        let nodes: Vec<Started> = (0..2)
            .map(|_| {
                // The concurrency is low, so that neither node takes all jobs at once.
                let node = builder(&world, &world.store, &log, limit());
                Started::new(node.concurrency(4).build().unwrap())
            })
            .collect();
        sleep(3 * SECOND).await;
        let begun = begun_within(&log, 2 * SECOND);
        assert!(
            expected.contains(&begun),
            "strict {strict}: unexpected number of bodies that began in 2 s: {begun}"
        );
        stop_all(nodes).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_fails_costs_no_attempt_and_makes_no_churn() {
    let world = World::new();
    let log = Log::default();
    let (down, asked) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let store = world.store.clone().with_faults({
        let (down, asked) = (Arc::clone(&down), Arc::clone(&asked));
        move |operation| match operation {
            "take" if down.load(Ordering::SeqCst) => {
                asked.fetch_add(1, Ordering::SeqCst);
                Fault::Failure(StoreErrorKind::Unavailable)
            }
            _ => Fault::None,
        }
    });
    let ids = enqueue(&world, mails(40)).await;
    let limit = RateLimit::per_second(100).strict();
    let node = Started::new(builder(&world, &store, &log, limit).build().unwrap());
    let other = world.job("other", |_| async { Ok(()) });
    let other = world.enqueue(other).await;
    sleep(30 * SECOND).await;
    assert_eq!(log.len(), 0);
    assert_eq!(world.read(other).await.state, JobState::Succeeded);
    let asked = asked.load(Ordering::SeqCst);
    assert!(
        (5..60).contains(&asked),
        "expected 5 to 59 calls of the limiter in 30 s, found \
         {asked}"
    );
    down.store(false, Ordering::SeqCst);
    for id in ids {
        let job = world.ended(id).await;
        assert_eq!(
            (job.state, job.attempts, job.crash_count),
            (JobState::Succeeded, 1, 0)
        );
        assert!(job.claim_seq < 60, "{} claims", job.claim_seq);
    }
    node.stop().await.unwrap();
}

/// A custom limiter that counts its calls for each key. For some keys, the first call delays the
/// job, is slow, fails, hangs or panics.
#[derive(Clone, Default)]
struct Own {
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}

#[async_trait]
impl RateLimiter for Own {
    async fn take(&self, key: &RateKey, rate: &Rate) -> ratchet_core::Result<RateAnswer> {
        assert_eq!(*rate, Rate::new(7, SECOND));
        let calls = {
            let mut asked = self.asked.lock().unwrap();
            let calls = asked.entry(key.to_string()).or_default();
            *calls += 1;
            *calls
        };
        match (key.key(), calls) {
            (Some("panics"), 1) => panic!("a bug"),
            (Some("fails"), 1) => Err(StoreError::new(StoreErrorKind::Other, "ask")),
            (Some("hangs"), 1) => std::future::pending().await,
            (Some("slow"), 1) => {
                sleep(2 * SECOND).await;
                Ok(RateAnswer::Granted)
            }
            (Some("waits"), 1) => Ok(RateAnswer::Wait(3 * SECOND)),
            _ => Ok(RateAnswer::Granted),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_one_s_own_is_asked_and_what_goes_wrong_in_it_harms_no_job() {
    for tenant in ["is fine", "panics", "fails", "hangs", "waits"] {
        let world = World::new();
        let (log, own) = (Log::default(), Own::default());
        let by = |mail: &Mail| mail.tenant.clone();
        let limit = RateLimit::per_second(7).by(by).limiter(own.clone());
        let node = start(&world, &log, limit);
        let ids = enqueue(&world, [Mail::of(tenant, 0)]).await;
        let job = world.ended(ids[0]).await;
        assert_eq!(
            (job.state, job.attempts),
            (JobState::Succeeded, 1),
            "{tenant}"
        );
        let calls = if tenant == "is fine" { 1 } else { 2 };
        let expected = BTreeMap::from([(format!("mail␟{tenant}"), calls)]);
        assert_eq!(*own.asked.lock().unwrap(), expected);
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_body_begins_after_a_drain_that_began_while_its_limiter_was_asked() {
    let world = World::new();
    let (log, own) = (Log::default(), Own::default());
    let by = |mail: &Mail| mail.tenant.clone();
    let limit = RateLimit::per_second(7).by(by).limiter(own.clone());
    let node = start(&world, &log, limit);
    let ids = enqueue(&world, [Mail::of("slow", 0)]).await;
    while own.asked.lock().unwrap().is_empty() {
        sleep(SECOND / 100).await;
    }
    node.stop().await.unwrap();
    let job = world.read(ids[0]).await;
    assert_eq!(
        (job.state, job.attempts, log.len()),
        (JobState::Pending, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_hybrid_limit_asks_the_store_only_for_jobs_without_a_key() {
    let world = World::new();
    let (log, asked) = (Log::default(), Arc::new(AtomicUsize::new(0)));
    let store = world.store.clone().with_faults({
        let asked = Arc::clone(&asked);
        move |operation| {
            asked.fetch_add(usize::from(operation == "take"), Ordering::SeqCst);
            Fault::None
        }
    });
    let by = |mail: &Mail| mail.tenant.clone();
    let limit = RateLimit::per_hour(3).by(by).hybrid();
    let node = Started::new(builder(&world, &store, &log, limit).build().unwrap());
    let tenants = ["a", "a", "a", "a", "b"].map(|tenant| Mail::of(tenant, 0));
    enqueue(&world, tenants).await;
    sleep(5 * SECOND).await;
    assert_eq!((log.len(), asked.load(Ordering::SeqCst)), (4, 0));
    enqueue(&world, mails(2)).await;
    sleep(5 * SECOND).await;
    assert_eq!((log.len(), asked.load(Ordering::SeqCst)), (6, 2));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_function_that_panics_fails_its_job_only() {
    let world = World::new();
    let log = Log::default();
    let by = |mail: &Mail| {
        assert!(mail.number != 1, "no such tenant");
        mail.tenant.clone()
    };
    let node = start(&world, &log, RateLimit::per_second(10).by(by));
    let retry = ratchet_core::RetryPolicy::never();
    let mut ids = Vec::new();
    for mail in mails(3) {
        ids.push(world.enqueue(mail.into_job().retry(retry)).await);
    }
    let [a, b, c] = [ids[0], ids[1], ids[2]];
    assert_eq!(world.ended(a).await.state, JobState::Succeeded);
    assert_eq!(world.ended(c).await.state, JobState::Succeeded);
    let failed = world.ended(b).await;
    assert_eq!(failed.state, JobState::Failed);
    assert!(failed.last_error.unwrap().contains("no such tenant"));
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn maintenance_forgets_unused_rates() {
    let world = World::new();
    let log = Log::default();
    let by = |mail: &Mail| mail.tenant.clone();
    let limit = RateLimit::per_second(10).by(by).strict();
    // Jobs are kept forever, so the maintenance has only idle rate keys to delete.
    let node =
        builder(&world, &world.store, &log, limit).retention(Retention::all(Retain::Forever));
    let node = Started::new(node.maintenance_interval(10 * SECOND).build().unwrap());
    let ids = enqueue(
        &world,
        (0..30).map(|number| Mail::of(&number.to_string(), 0)),
    )
    .await;
    for id in ids {
        world.ended(id).await;
    }
    sleep(60 * SECOND).await;
    assert_eq!(world.store.forget_idle(100).await.unwrap(), 0);
    node.stop().await.unwrap();
}

/// A store that has only the required parts.
#[derive(Debug)]
struct Bare(MemoryStore);

impl Store for Bare {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        &self.0
    }

    fn queues(&self) -> &dyn QueueStore {
        &self.0
    }

    fn nodes(&self) -> &dyn NodeStore {
        &self.0
    }

    fn locks(&self) -> &dyn LockStore {
        &self.0
    }

    fn versions(&self) -> &dyn VersionStore {
        &self.0
    }
}

#[tokio::test(start_paused = true)]
async fn limits_that_cannot_work_are_refused_with_everything_else() {
    let refused = |limit: RateLimit<Mail>| {
        let builder =
            Ratchet::builder(Arc::new(Bare(MemoryStore::new()))).daemon("d", |_| async { Ok(()) });
        let error = builder.rate_limit::<Mail>(limit).build().unwrap_err();
        error.problems().join("\n")
    };
    let refusal = refused(RateLimit::per_second(0));
    assert!(
        refusal.contains("the rate limit of mail is invalid: limit is 0"),
        "{refusal}"
    );
    assert!(
        refusal.contains("mail has a rate limit, but no job of this kind is registered"),
        "{refusal}"
    );
    for limit in [
        RateLimit::per_second(1).strict(),
        RateLimit::per_second(1).hybrid(),
    ] {
        let refused = refused(limit);
        assert!(
            refused.contains("does not support rate limits"),
            "{refused}"
        );
    }
    assert!(!refused(RateLimit::per_second(1)).contains("does not support rate limits"));
    let twice = World::new()
        .builder()
        .register::<Mail>()
        .state(Log::default());
    let twice = twice.rate_limit::<Mail>(RateLimit::per_second(1));
    let error = twice
        .rate_limit::<Mail>(RateLimit::per_minute(1))
        .build()
        .unwrap_err();
    assert_eq!(error.problems(), ["mail has two rate limits; declare one"]);
    let client = Ratchet::client(Arc::new(Bare(MemoryStore::new())));
    let error = client.set_permits("api", 1).await.unwrap_err();
    assert_eq!(error.invalid_input().unwrap().field(), "permit");
    let each = FairScope::queues("default").unwrap();
    let refused = [
        client.set_fair_limit(&each, 1).await.unwrap_err(),
        client.remove_fair_limit(&each).await.unwrap_err(),
        client.fair_limits().await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.invalid_input().unwrap().field(), "fair_limit");
    }
}
