//! `ratchet enqueue`.

use std::io::{Read, Write};

use ratchet::NewJob;
use ratchet::model::Enqueued;
use ratchet_http::view;
use serde_json::value::RawValue;

use crate::app::App;
use crate::args::Enqueue;
use crate::exit::Failure;

pub(super) async fn run(app: &mut App, job: Enqueue) -> Result<(), Failure> {
    let payload = payload(&job.payload)?;
    let new = new_job(&job, &payload);
    new.validate()?;
    let client = app.client().await?;
    let enqueued = match job.idempotency_key {
        Some(_) => client.enqueue(new).await?,
        None => (client.enqueue(new).await).map_err(Failure::of_unrepeatable)?,
    };
    let (job, created) = match enqueued {
        Enqueued::Created(job) => (job.to_string(), true),
        Enqueued::Duplicate(job) => (job.to_string(), false),
    };
    if app.out.is_json() {
        return app.out.document(&view::Triggered { job, created });
    }
    app.out.line(job)?;
    if !created {
        // Scripts take the id from stdout. There is nobody left to tell if this fails.
        let remark = "that job has the key already; nothing was enqueued";
        drop(writeln!(anstream::stderr(), "{remark}"));
    }
    Ok(())
}

/// The payload as it was written, if it is JSON.
fn payload(text: &str) -> Result<Box<RawValue>, Failure> {
    let mut from_stdin = String::new();
    let text = match text {
        "-" => {
            std::io::stdin().read_to_string(&mut from_stdin)?;
            from_stdin.as_str()
        }
        text => text,
    };
    serde_json::from_str(text.trim()).map_err(|error| {
        Failure::usage(format!("the payload is not JSON: {error}"))
            .remedy("A text needs its quotes inside those of the shell: '\"hello\"'.")
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
    if let Some(key) = &job.unique_key {
        new = new.unique_key(key);
    }
    if let Some(key) = &job.idempotency_key {
        new = new.idempotency_key(key);
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
