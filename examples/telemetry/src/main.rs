//! Shows what operators see: metrics as Prometheus reads them, and the span of a job in the trace
//! of the request that enqueued it.
//!
//! ```sh
//! cargo run --release -p telemetry-example
//! ```
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use ratchet::metrics::{SECONDS, SIZES};
use ratchet::{Job, JobContext, JobResult, JobState, Ratchet, RetryPolicy};
use serde::{Deserialize, Serialize};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// A job that charges a card. Its first attempt fails.
#[derive(Serialize, Deserialize)]
struct Charge {
    cents: u32,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        if ctx.attempt() == 1 {
            return Err(format!(
                "the bank did not confirm the charge of {} cents",
                self.cents
            )
            .into());
        }
        Ok(())
    }
}

/// Installs a Prometheus exporter, and returns a handle that renders the metrics as text. A server
/// would return this text at `/metrics`.
fn metrics() -> anyhow::Result<PrometheusHandle> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_jobs".into()), SIZES)?;
    Ok(builder.install_recorder()?)
}

/// Installs an OpenTelemetry exporter that prints spans. A real service would send the spans to a
/// collector.
fn traces() -> SdkTracerProvider {
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("telemetry"));
    tracing_subscriber::registry().with(layer).init();
    provider
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // The exporters must be installed before the node runs.
    let metrics = metrics()?;
    let traces = traces();
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("telemetry.db").display());
    let store = ratchet::connect(&url).await?;
    let node = Ratchet::builder(store).register::<Charge>().build()?;
    let client = node.client().clone();

    // An HTTP handler would enqueue the job like this, in the span of its framework.
    let retry = RetryPolicy::fixed(3, Duration::from_millis(100));
    let enqueue = async {
        let job = Charge { cents: 1_200 }.into_job().retry(retry);
        client.enqueue(job).await
    };
    let request = tracing::info_span!("POST /orders");
    let id = enqueue.instrument(request).await?.id();

    let ended = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let job = client.job(id).await;
            if matches!(job, Ok(Some(job)) if job.state == JobState::Succeeded) {
                return;
            }
        }
    };
    node.run_until(ended).await?;
    traces.shutdown()?;

    println!("\nSome of the metrics:");
    let text = metrics.render();
    let shown = [
        "ratchet_jobs_enqueued_total",
        "ratchet_jobs_begun_total",
        "ratchet_jobs_settled_total",
        "ratchet_job_wait_seconds_count",
        "ratchet_claim_calls_total",
        "ratchet_drain_seconds_count",
    ];
    for line in text.lines() {
        if shown.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0") {
            println!("  {line}");
        }
    }
    Ok(())
}
