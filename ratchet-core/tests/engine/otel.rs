//! Spans of jobs in the traces of their enqueuers, as an OpenTelemetry exporter receives them.

use std::time::Duration;

use opentelemetry::trace::{SpanId, SpanKind, Status, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use ratchet_core::{JobError, JobId, NewJob, Ratchet, RetryPolicy, TraceContext};
use tokio::time::sleep;
use tracing::Instrument;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use crate::kit::World;

const SECOND: Duration = Duration::from_secs(1);

/// Collects the spans of one thread, as an exporter receives them.
struct Traces {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _installed: DefaultGuard,
}

impl Traces {
    fn install() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            exporter,
            _provider: provider,
            _installed: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Returns the ended spans with this name, in the order in which they ended.
    fn of(&self, name: &str) -> Vec<SpanData> {
        let mut all = self.exporter.get_finished_spans().unwrap();
        all.retain(|span| span.name == name);
        all
    }

    fn one(&self, name: &str) -> SpanData {
        let mut all = self.of(name);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

fn attribute(span: &SpanData, name: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.to_string())
}

/// Enqueues a job through a client, inside a span.
async fn request(world: &World, job: NewJob) -> JobId {
    let client = Ratchet::client(std::sync::Arc::new(world.store.clone()));
    let enqueue = client.enqueue(job);
    let enqueued = enqueue.instrument(tracing::info_span!("request")).await;
    enqueued.unwrap().id()
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_in_the_trace_of_who_enqueued_it_and_so_do_those_that_it_enqueues() {
    let (traces, world) = (Traces::install(), World::new());
    let child = world.job("child", |_| async { Ok(()) });
    let child_id = child.id();
    let parent = world.job("parent", move |ctx| {
        let child = child.clone();
        async move {
            ctx.enqueue(child).await?;
            Ok(())
        }
    });
    let parent = request(&world, parent).await;
    // The job runs much later, and in another task.
    sleep(3_600 * SECOND).await;
    let node = world.start();
    world.ended(parent).await;
    world.until(child_id, |job| job.state.is_terminal()).await;
    node.stop().await.unwrap();
    let request = traces.one("request");
    let jobs = traces.of("scripted");
    let of = |id: JobId| {
        let mut of = jobs.iter();
        of.find(|span| attribute(span, "id") == Some(id.to_string()))
            .unwrap()
    };
    let (parent, child) = (of(parent), of(child_id));
    assert_eq!(parent.parent_span_id, request.span_context.span_id());
    assert!(parent.parent_span_is_remote);
    assert_eq!(parent.span_kind, SpanKind::Consumer);
    assert_eq!(attribute(parent, "outcome").as_deref(), Some("succeeded"));
    assert_eq!(parent.status, Status::Unset);
    assert_eq!(child.parent_span_id, parent.span_context.span_id());
    for span in [parent, child] {
        assert_eq!(
            span.span_context.trace_id(),
            request.span_context.trace_id()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_say_so_each_in_a_span_of_its_own() {
    let (traces, world) = (Traces::install(), World::new());
    let fails = world.job("fails", |ctx| async move {
        match ctx.attempt() {
            1 => Err::<(), _>("not yet".into()),
            _ => Err(JobError::discard("never")),
        }
    });
    let fails = request(&world, fails.retry(RetryPolicy::fixed(5, SECOND))).await;
    let panics = world.job("panics", |_| async {
        if true {
            panic!("planned");
        }
        Ok(())
    });
    let panics = request(&world, panics.retry(RetryPolicy::never())).await;
    let late = world.job("late", |_| async {
        sleep(60 * SECOND).await;
        Ok(())
    });
    let late = late.retry(RetryPolicy::never()).timeout(SECOND);
    let late = request(&world, late).await;
    let stalls = world.job("stalls", |ctx| async move {
        if ctx.checkpoint::<bool>()?.is_none() {
            ctx.save_checkpoint(&true).await?;
            sleep(3_600 * SECOND).await;
        }
        Ok(())
    });
    let stalls = request(&world, stalls.stall_timeout(2 * SECOND)).await;
    let node = world.start();
    let mut told = Vec::new();
    for id in [fails, panics, late, stalls] {
        world.ended(id).await;
        let mut spans = traces.of("scripted");
        spans.retain(|span| attribute(span, "id") == Some(id.to_string()));
        told.extend(spans.into_iter().map(|span| {
            let outcome = attribute(&span, "outcome").unwrap();
            (attribute(&span, "attempt").unwrap(), outcome, span.status)
        }));
    }
    node.stop().await.unwrap();
    let of = |attempt: &str, outcome: &str, status: Status| {
        (attempt.to_owned(), outcome.to_owned(), status)
    };
    let expected = [
        of("1", "retried", Status::error("not yet")),
        of("2", "failed", Status::error("never")),
        of("1", "failed", Status::error("panicked: planned")),
        of("1", "failed", Status::error("timed out after 1s")),
        of(
            "1",
            "lost",
            Status::error("the node no longer holds the claim of the job"),
        ),
        of("1", "succeeded", Status::Unset),
    ];
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_job_keeps_the_trace_that_it_was_given_and_needs_none() {
    let (traces, world) = (Traces::install(), World::new());
    let given = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let given = given.unwrap().with_state("vendor=1").unwrap();
    let job = world.job("has one", |_| async { Ok(()) });
    let with = request(&world, job.trace(given.clone())).await;
    assert_eq!(world.read(with).await.spec.trace, Some(given));
    let node = world.start();
    world.ended(with).await;
    let span = traces.one("scripted");
    let id = SpanId::from_hex("b7ad6b7169203331").unwrap();
    assert_eq!(span.parent_span_id, id);
    assert_eq!(span.span_context.trace_state().header(), "vendor=1");
    // The next job is enqueued outside of any span.
    let without = world.job("has none", |_| async { Ok(()) });
    let without = node.node.enqueue(without).await.unwrap().id();
    assert_eq!(world.ended(without).await.spec.trace, None);
    let alone = traces.of("scripted").remove(1);
    assert_eq!(alone.parent_span_id, SpanId::INVALID);
    node.stop().await.unwrap();
}

#[test]
fn the_current_trace_is_that_of_the_span_with_its_state_and_flags() {
    let traces = Traces::install();
    assert_eq!(TraceContext::current(), None);
    let span = tracing::info_span!("outer");
    let current = span.in_scope(TraceContext::current).unwrap();
    drop(span);
    let outer = traces.one("outer").span_context;
    let expected = format!("00-{:032x}-{:016x}-01", outer.trace_id(), outer.span_id());
    assert_eq!(
        (current.traceparent(), current.tracestate()),
        (&*expected, None)
    );
}
