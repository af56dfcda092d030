//! The span of a running job.

use tracing::Span;
use tracing::field::Empty;

use crate::model::{Claim, Outcome, Settlement};

/// Creates the span of a claim. With the feature `otel` it belongs to the trace in which the job
/// was enqueued.
pub(super) fn of(claim: &Claim) -> Span {
    let kind = &claim.route.kind;
    let queue = &claim.route.queue;
    let id = &claim.token.job;
    let attempt = claim.attempts + 1;
    let traceparent = claim.trace.as_ref().map(|trace| trace.traceparent());
    #[cfg(not(feature = "otel"))]
    let span =
        tracing::info_span!("job", %kind, %id, %queue, attempt, traceparent, outcome = Empty);
    #[cfg(feature = "otel")]
    let span = tracing::info_span!(
        "job", %kind, %id, %queue, attempt, traceparent, outcome = Empty,
        otel.name = %kind, otel.kind = "consumer",
    );
    #[cfg(feature = "otel")]
    if let Some(trace) = &claim.trace {
        crate::otel::set_parent(&span, trace);
    }
    span
}

/// Records the outcome of the body, as the store will receive it.
pub(super) fn ended(span: &Span, end: &Settlement) {
    let (outcome, error) = match &end.outcome {
        Outcome::Succeeded { .. } => ("succeeded", None),
        Outcome::Retry { error, .. } => ("retried", Some(error)),
        Outcome::Failed { error } => ("failed", Some(error)),
        Outcome::Snoozed { .. } => ("snoozed", None),
        Outcome::Released => ("released", None),
        Outcome::Undelivered => ("undelivered", None),
        Outcome::Cancelled => ("cancelled", None),
        Outcome::Expired => ("expired", None),
    };
    told(span, outcome, error.map(String::as_str));
}

/// Records that the node lost the job.
pub(super) fn lost(span: &Span) {
    told(
        span,
        "lost",
        Some("the node no longer holds the claim of the job"),
    );
}

fn told(span: &Span, outcome: &'static str, error: Option<&str>) {
    span.record("outcome", outcome);
    #[cfg(feature = "otel")]
    if let Some(error) = error {
        crate::otel::failed(span, error);
    }
    #[cfg(not(feature = "otel"))]
    let _ = error;
}
