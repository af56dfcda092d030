//! OpenTelemetry traces, from the span that enqueues a job to the span that runs it.

use std::borrow::Cow;

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::model::NewJob;
use crate::trace::TraceContext;

impl TraceContext {
    /// Returns the current trace of the caller; `None` if the caller has no trace. Requires the
    /// feature `otel`.
    ///
    /// If there is a `tracing-opentelemetry` layer, this is the trace of the current `tracing`
    /// span. Otherwise it is the trace of the current OpenTelemetry context.
    ///
    /// Clients call this function for every job that has no trace. Call it yourself for jobs that
    /// you enqueue without a client, such as directly through a store.
    #[must_use]
    pub fn current() -> Option<Self> {
        of_span(&Span::current()).or_else(|| of(Context::current().span().span_context()))
    }

    /// Returns the trace as a span context of OpenTelemetry; `None` if the stored text has another
    /// format.
    fn remote(&self) -> Option<SpanContext> {
        let mut parts = self.traceparent().split('-').skip(1);
        let trace = TraceId::from_hex(parts.next()?).ok()?;
        let span = SpanId::from_hex(parts.next()?).ok()?;
        let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
        let state = self.tracestate().unwrap_or_default();
        let state = state.parse::<TraceState>().unwrap_or_default();
        Some(SpanContext::new(
            trace,
            span,
            TraceFlags::new(flags),
            true,
            state,
        ))
    }
}

fn of_span(span: &Span) -> Option<TraceContext> {
    of(span.context().span().span_context())
}

fn of(context: &SpanContext) -> Option<TraceContext> {
    if !context.is_valid() {
        return None;
    }
    let (trace, span) = (context.trace_id(), context.span_id());
    let flags = context.trace_flags().to_u8();
    let trace = TraceContext::new(format!("00-{trace:032x}-{span:016x}-{flags:02x}")).ok()?;
    let state = context.trace_state().header();
    if state.is_empty() {
        return Some(trace);
    }
    // A trace without its state is better than no trace.
    Some(trace.clone().with_state(state).unwrap_or(trace))
}

/// Returns the jobs. Each job without a trace gets the current trace of the caller.
pub(crate) fn traced(jobs: &[NewJob]) -> Cow<'_, [NewJob]> {
    if jobs.iter().all(|job| job.spec().trace.is_some()) {
        return Cow::Borrowed(jobs);
    }
    let Some(current) = TraceContext::current() else {
        return Cow::Borrowed(jobs);
    };
    let traced = |job: &NewJob| match job.spec().trace {
        Some(_) => job.clone(),
        None => job.clone().trace(current.clone()),
    };
    Cow::Owned(jobs.iter().map(traced).collect())
}

/// Makes the span in `trace`, which enqueued a job, the parent of `span`, which runs the job.
pub(crate) fn set_parent(span: &Span, trace: &TraceContext) {
    if let Some(remote) = trace.remote() {
        // This fails if there is no OpenTelemetry layer; then no span needs a parent.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
}

/// Marks the span as failed with this error text.
pub(crate) fn failed(span: &Span, error: &str) {
    span.set_status(Status::error(error.to_owned()));
}
