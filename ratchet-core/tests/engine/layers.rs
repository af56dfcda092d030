//! Tower layers around bodies.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ratchet_core::{
    Job, JobContext, JobError, JobRequest, JobResponse, JobResult, JobService, JobState, Json,
    NewJob, RetryPolicy, ServiceError, Verdict,
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::kit::{Scripted, Started, World};

const SECOND: Duration = Duration::from_secs(1);

/// A job with an alias, whose body does nothing.
#[derive(Deserialize, Serialize)]
struct Other;

impl Job for Other {
    const KIND: &'static str = "other";
    const ALIASES: &'static [&'static str] = &["others"];
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        Ok(())
    }
}

type Log = Arc<Mutex<Vec<String>>>;

/// A layer as an application could write it: it records the jobs and their results.
#[derive(Clone)]
struct Metrics {
    name: &'static str,
    log: Log,
}

impl Metrics {
    fn new(name: &'static str, log: &Log) -> Self {
        Self {
            name,
            log: Arc::clone(log),
        }
    }
}

impl<S> Layer<S> for Metrics {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Measured<S> {
        let metrics = self.clone();
        Measured { inner, metrics }
    }
}

#[derive(Clone)]
struct Measured<S> {
    inner: S,
    metrics: Metrics,
}

/// Records in the log when it is dropped, together with the future of a layer.
struct Gone(Metrics);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0
            .log
            .lock()
            .unwrap()
            .push(format!("{} gone", self.0.name));
    }
}

impl<S> Service<JobRequest> for Measured<S>
where
    S: Service<JobRequest, Response = JobResponse, Error = ServiceError>,
    S::Future: Send + 'static,
{
    type Response = JobResponse;
    type Error = ServiceError;
    type Future = Pin<Box<dyn Future<Output = Result<JobResponse, ServiceError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: JobRequest) -> Self::Future {
        let (kind, attempt) = (
            request.context().kind().clone(),
            request.context().attempt(),
        );
        let Metrics { name, log } = self.metrics.clone();
        log.lock()
            .unwrap()
            .push(format!("{name} > {kind} {attempt}"));
        let gone = Gone(self.metrics.clone());
        let inner = self.inner.call(request);
        Box::pin(async move {
            let answer = inner.await;
            std::mem::forget(gone);
            log.lock().unwrap().push(match &answer {
                Ok(done) => format!(
                    "{name} < {:?}",
                    done.result().map(|json| json.as_str().to_owned())
                ),
                Err(error) => format!("{name} < {:?}: {error}", error.verdict()),
            });
            answer
        })
    }
}

fn told(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn they_run_outermost_first_and_those_of_a_kind_inside() {
    let world = World::new();
    let log = Log::default();
    let layer = |name| Metrics::new(name, &log);
    let builder = world.builder().register::<Other>();
    let builder = builder
        .layer_for::<Scripted>(layer("c"))
        .layer(layer("a"))
        .layer_for::<Scripted>(layer("d"))
        .layer(layer("b"));
    let node = Started::new(builder.build().unwrap());
    let id = world.enqueue(world.job("sum", |_| async { Ok(42) })).await;
    assert_eq!(world.ended(id).await.result.unwrap().as_str(), "42");
    let kind = "scripted 1";
    assert_eq!(
        told(&log),
        [
            format!("a > {kind}"),
            format!("b > {kind}"),
            format!("c > {kind}"),
            format!("d > {kind}"),
            r#"d < Some("42")"#.to_owned(),
            r#"c < Some("42")"#.to_owned(),
            r#"b < Some("42")"#.to_owned(),
            r#"a < Some("42")"#.to_owned(),
        ]
    );
    log.lock().unwrap().clear();
    let other = world.enqueue(Other.into_job()).await;
    world.ended(other).await;
    assert_eq!(
        told(&log),
        ["a > other 1", "b > other 1", "b < None", "a < None"]
    );
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn layers_of_a_kind_alone_are_around_all_its_names() {
    let world = World::new();
    let log = Log::default();
    let builder = world.builder().register::<Other>();
    let builder = builder.layer_for::<Other>(Metrics::new("l", &log));
    let _node = Started::new(builder.build().unwrap());
    for kind in ["other", "others"] {
        let id = world.enqueue(NewJob::new(kind, &())).await;
        world.ended(id).await;
    }
    let plain = world
        .enqueue(world.job("plain", |_| async { Ok(()) }))
        .await;
    world.ended(plain).await;
    assert_eq!(
        told(&log),
        ["l > other 1", "l < None", "l > others 1", "l < None"]
    );
}

#[test]
fn a_layer_for_a_kind_that_is_not_registered_is_refused() {
    let world = World::new();
    let error = world
        .builder()
        .layer_for::<Other>(Metrics::new("l", &Log::default()));
    let problems = error.build().unwrap_err();
    assert_eq!(
        problems.problems(),
        ["a layer is for the kind other, but no job of this kind is registered"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_tower_is_a_failed_attempt() {
    let world = World::new();
    let job = world.job("slow once", |ctx| async move {
        if ctx.attempt() == 1 {
            sleep(3_600 * SECOND).await;
        }
        Ok(ctx.attempt())
    });
    let id = world
        .enqueue(job.retry(RetryPolicy::fixed(3, SECOND)))
        .await;
    let builder = world.builder().layer(TimeoutLayer::new(5 * SECOND));
    let _node = Started::new(builder.build().unwrap());
    let job = world.ended(id).await;
    assert_eq!((job.state, job.attempts), (JobState::Succeeded, 2));
    assert_eq!(job.last_error.as_deref(), Some("request timed out"));
    let ran = world.store_history(id).await[0].ran_for.unwrap();
    assert_eq!(ran, 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_of_tower_holds_for_all_jobs_of_the_node() {
    let world = World::new();
    let running: Arc<AtomicUsize> = Arc::default();
    let most: Arc<AtomicUsize> = Arc::default();
    let mut ids = Vec::new();
    for number in 0..12 {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let job = world.job(&number.to_string(), move |_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(SECOND).await;
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
        let queue = format!("q{}", number % 2);
        ids.push(world.enqueue(job.queue(&queue)).await);
    }
    let builder = world.builder().queue_concurrency("q0", 8);
    let builder = builder.layer(ConcurrencyLimitLayer::new(3));
    let _node = Started::new(builder.build().unwrap());
    for id in ids {
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn what_a_body_says_with_its_error_comes_through_layers_that_wrap_it() {
    let world = World::new();
    let log = Log::default();
    let job = world.job("later", |ctx| async move {
        match ctx.checkpoint::<bool>()? {
            Some(_) => Err::<(), _>(JobError::discard("no such user")),
            None => {
                ctx.save_checkpoint(&true).await?;
                Err(JobError::snooze(30 * SECOND))
            }
        }
    });
    let id = world.enqueue(job).await;
    // `TimeoutLayer` boxes the error of the body, and `MapErrLayer`, the outermost layer, wraps the
    // boxed error.
    let builder = world
        .builder()
        .layer(tower::util::MapErrLayer::new(|error: ServiceError| {
            Wrapped(error)
        }))
        .layer(TimeoutLayer::new(60 * SECOND))
        .layer(Metrics::new("m", &log));
    let _node = Started::new(builder.build().unwrap());
    let job = world.ended(id).await;
    assert_eq!((job.state, job.attempts), (JobState::Failed, 1));
    assert_eq!(job.last_error.as_deref(), Some("in a layer: no such user"));
    let snooze = Verdict::Snooze(30 * SECOND);
    assert_eq!(
        told(&log),
        [
            "m > scripted 1".to_owned(),
            format!("m < {snooze:?}: "),
            "m > scripted 1".to_owned(),
            "m < Discard: no such user".to_owned(),
        ]
    );
    let history = world.store_history(id).await;
    assert!((history[1].claimed_at - history[0].ended_at).num_seconds() >= 30);
}

#[derive(Debug)]
struct Wrapped(ServiceError);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("in a layer")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// How a layer answers instead of calling the body.
#[derive(Clone, Copy)]
enum Refuses {
    WithAnError,
    WithASnooze,
    WithAPanic,
    WhenAskedWhetherItIsReady,
}

#[derive(Clone)]
struct Refusing(
    Refuses,
    #[expect(dead_code, reason = "the layer must own the inner service")] JobService,
);

impl Service<JobRequest> for Refusing {
    type Response = JobResponse;
    type Error = BoxError;
    type Future = std::future::Ready<Result<JobResponse, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.0 {
            Refuses::WhenAskedWhetherItIsReady => Poll::Ready(Err("never ready".into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _request: JobRequest) -> Self::Future {
        match self.0 {
            Refuses::WithAnError => std::future::ready(Err("refused".into())),
            Refuses::WithASnooze => {
                let snooze = ServiceError::from(JobError::snooze(3_600 * SECOND));
                std::future::ready(Err(snooze.into()))
            }
            _ => panic!("refused loudly"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_of_a_layer_are_failed_attempts() {
    for (refuses, error) in [
        (Refuses::WithAnError, "refused"),
        (Refuses::WithAPanic, "panicked: refused loudly"),
        (Refuses::WhenAskedWhetherItIsReady, "never ready"),
    ] {
        let world = World::new();
        let job = world.job("never", |_| async {
            if true {
                panic!("the body ran");
            }
            Ok(())
        });
        let id = world
            .enqueue(job.retry(RetryPolicy::fixed(2, SECOND)))
            .await;
        let layer = tower::layer::layer_fn(move |inner| Refusing(refuses, inner));
        let node = Started::new(world.builder().layer(layer).build().unwrap());
        let job = world.ended(id).await;
        assert_eq!((job.state, job.attempts), (JobState::Failed, 2));
        assert_eq!(job.last_error.as_deref(), Some(error));
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_can_put_a_job_off() {
    let world = World::new();
    let id = world.enqueue(world.job("fine", |_| async { Ok(()) })).await;
    let layer = tower::layer::layer_fn(|inner| Refusing(Refuses::WithASnooze, inner));
    let _node = Started::new(world.builder().layer(layer).build().unwrap());
    let job = world
        .until(id, |job| job.claim_seq == 1 && job.node.is_none())
        .await;
    assert_eq!((job.state, job.attempts), (JobState::Pending, 0));
    assert!((job.run_at - job.created_at).num_seconds() >= 3_600);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_job_drops_its_layers_with_the_body() {
    let world = World::new();
    let log = Log::default();
    let job = world.job("deaf", |_| async {
        sleep(3_600 * SECOND).await;
        Ok(())
    });
    let job = job.timeout(10 * SECOND).retry(RetryPolicy::never());
    let id = world.enqueue(job).await;
    let builder = world.builder();
    let builder = builder
        .layer(Metrics::new("a", &log))
        .layer(Metrics::new("b", &log));
    let _node = Started::new(builder.build().unwrap());
    let job = world.ended(id).await;
    assert_eq!(job.last_error.as_deref(), Some("timed out after 10s"));
    let log = told(&log);
    assert_eq!(log[..2], ["a > scripted 1", "b > scripted 1"]);
    assert_eq!(log.len(), 4);
    assert!(
        log[2..].iter().all(|line| line.ends_with("gone")),
        "{log:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_decode_comes_to_no_layer() {
    let world = World::new();
    let log = Log::default();
    let poison = world.enqueue(NewJob::new("scripted", &[1, 2, 3])).await;
    let builder = world.builder().layer(Metrics::new("l", &log));
    let _node = Started::new(builder.build().unwrap());
    assert_eq!(world.ended(poison).await.state, JobState::Failed);
    assert_eq!(told(&log), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_sync_is_fine_and_is_cloned_for_each_job() {
    /// A service that counts its clones; the cell makes it `Send` but not `Sync`.
    struct Counted(JobService, Arc<AtomicUsize>, std::cell::Cell<bool>);

    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.1.fetch_add(1, Ordering::SeqCst);
            Self(
                self.0.clone(),
                Arc::clone(&self.1),
                std::cell::Cell::new(false),
            )
        }
    }

    impl Service<JobRequest> for Counted {
        type Response = JobResponse;
        type Error = ServiceError;
        type Future = Pin<Box<dyn Future<Output = Result<JobResponse, ServiceError>> + Send>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ServiceError>> {
            self.2.set(true);
            self.0.poll_ready(cx)
        }

        fn call(&mut self, request: JobRequest) -> Self::Future {
            assert!(
                self.2.get(),
                "`poll_ready` should return ready before `call`"
            );
            let inner = self.0.clone();
            Box::pin(async move {
                let mut inner = inner;
                poll_fn(|cx| inner.poll_ready(cx)).await?;
                inner.oneshot(request).await
            })
        }
    }

    let world = World::new();
    let clones: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&clones);
    let layer = tower::layer::layer_fn(move |inner| {
        Counted(inner, Arc::clone(&counted), std::cell::Cell::new(false))
    });
    let node = Started::new(world.builder().layer(layer).build().unwrap());
    for name in ["a", "b"] {
        let id = world.enqueue(world.job(name, |_| async { Ok(()) })).await;
        assert_eq!(world.ended(id).await.state, JobState::Succeeded);
    }
    node.stop().await.unwrap();
    assert_eq!(clones.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_layer_may_answer_for_the_body() {
    let world = World::new();
    let answers = tower::layer::layer_fn(|_body: JobService| {
        tower::service_fn(|request: JobRequest| async move {
            let result = Json::encode("result", &request.context().attempt())?;
            Ok::<_, BoxError>(JobResponse::new(Some(result)))
        })
    });
    let node = Started::new(world.builder().layer(answers).build().unwrap());
    let id = world
        .enqueue(world.job("never", |_| async { Err::<(), _>("ran".into()) }))
        .await;
    let job = world.ended(id).await;
    assert_eq!(job.state, JobState::Succeeded);
    assert_eq!(job.result.unwrap().as_str(), "1");
    node.stop().await.unwrap();
}
