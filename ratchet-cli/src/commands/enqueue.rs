//! `ratchet enqueue`: enqueues one job.

use std::io::Write;

use ratchet::{Enqueued, NewJob};
use ratchet_http::view;
use serde_json::value::RawValue;

use crate::app::App;
use crate::args::Enqueue;
use crate::exit::Failure;

pub(super) async fn run(app: &mut App, job: Enqueue) -> Result<(), Failure> {
    let payload = match job.payload.as_str() {
        "-" => payload(&from_stdin().await?)?,
        text => payload(text)?,
    };
    let new = new_job(&job, &payload);
    new.validate()?;
    let client = app.client().await?;
    let enqueued = match job.idempotency_key {
        Some(_) => client.enqueue(new).await?,
        None => (client.enqueue(new).await).map_err(Failure::of_unrepeatable)?,
    };
    let (job, created) = (
        enqueued.id().to_string(),
        matches!(enqueued, Enqueued::Created(_)),
    );
    if app.out.is_json() {
        return app.out.document(&view::Triggered { job, created });
    }
    app.out.line(job)?;
    if !created {
        // Scripts read the id from stdout, so the remark goes to stderr. A failed write is ignored,
        // because stderr then has no reader.
        let remark = match enqueued {
            Enqueued::Replaced(_) => "the waiting job with the same unique key got this payload",
            _ => "nothing was enqueued: an earlier job has the same unique key",
        };
        drop(writeln!(anstream::stderr(), "{remark}"));
    }
    Ok(())
}

/// Reads stdin to its end. If this future is dropped, a background thread continues to read stdin.
async fn from_stdin() -> Result<String, Failure> {
    let read = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
    let read = read.await;
    Ok(read.map_err(|error| Failure::failed(error.to_string()))??)
}

/// Returns `text` as JSON without reformatting it. Fails if `text` is not valid JSON.
fn payload(text: &str) -> Result<Box<RawValue>, Failure> {
    serde_json::from_str(text.trim()).map_err(|error| {
        Failure::usage(format!("the payload is not JSON: {error}")).remedy(
            "A JSON string needs its own quotes inside the quotes of the shell: \
             '\"hello\"'.",
        )
    })
}

fn new_job(job: &Enqueue, payload: &RawValue) -> NewJob {
    let mut new = NewJob::new(&job.kind, payload);
    if let Some(queue) = &job.queue {
        new = new.queue(queue);
    }
    if let Some(priority) = job.priority {
        new = new.priority(priority.read());
    }
    if let Some(delay) = job.delay {
        new = new.delay(delay);
    }
    if let Some(at) = job.at {
        new = new.run_at(at);
    }
    if let Some(expiry) = job.expires_in {
        new = new.expires_in(expiry);
    }
    if let Some(expiry) = job.expires_at {
        new = new.expires_at(expiry);
    }
    if let Some(key) = &job.unique_key {
        new = new.unique_key(key);
    }
    if let Some(how) = job.on_conflict {
        new = new.on_conflict(how.read(job.max_delay));
    }
    if let Some(key) = &job.idempotency_key {
        new = new.idempotency_key(key);
    }
    if let Some(lifetime) = job.unique_for {
        new = new.unique_for(lifetime);
    }
    if let Some(capability) = &job.capability {
        new = new.capability(capability);
    }
    if let Some(lane) = &job.lane {
        new = new.lane(lane);
    }
    if let Some(resource) = &job.permit {
        new = new.permit(resource);
    }
    if let Some(timeout) = job.timeout {
        new = new.timeout(timeout);
    }
    if let Some(version) = job.payload_version {
        new = new.payload_version(version);
    }
    job.tag.iter().fold(new, |new, tag| new.tag(tag))
}
