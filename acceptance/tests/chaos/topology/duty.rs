//! The jobs of the topology cases. The payload contains how the job was enqueued, and the body
//! compares this with the job that it runs as.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ratchet::store_api::time;
use ratchet::{Job, JobContext, JobResult, NewJob, Requires};
use serde::{Deserialize, Serialize};

use crate::worker::Notes;

/// The kinds of the jobs. All have the same payload type, so that a body runs even with the payload
/// of another kind.
pub(crate) const KINDS: [&str; 3] = ["plain", "laned", "permitted"];
/// The resource of which a job of the kind `permitted` needs a permit.
pub(crate) const RESOURCE: &str = "duties";

const SHORT: Duration = Duration::from_millis(50);
/// How long the body of a long job takes: longer than a node takes to store a progress report.
const LONG: Duration = Duration::from_millis(800);

/// The payload: how the producer enqueued the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Duty {
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) lane: Option<String>,
    pub(crate) permit: bool,
    /// Whether the body takes long and reports progress.
    pub(crate) long: bool,
    /// Whether the first attempt fails.
    pub(crate) fails: bool,
}

impl Duty {
    pub(crate) fn job(&self) -> NewJob {
        let job = NewJob::new(&self.kind, self).queue(&self.queue);
        let job = match &self.lane {
            Some(lane) => job.lane(lane),
            None => job,
        };
        match self.permit {
            true => job.permit(RESOURCE),
            false => job,
        }
    }
}

/// Identifies one run of a body. It is the result of a duty, or the error of the failing attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) worker: String,
    /// The time at which the body began, in milliseconds since 1970. Workers and servers share the
    /// clock of this machine.
    pub(crate) began: i64,
}

/// The note that a body writes when it begins.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begun {
    pub(crate) job: String,
    pub(crate) kind: String,
    pub(crate) lane: Option<String>,
    pub(crate) body: Body,
    /// Whether the kind, queue or lane differs from that in the payload.
    pub(crate) wrong: bool,
}

/// The job of the kind `KINDS[KIND]`, with a duty as its payload.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct As<const KIND: usize>(Duty);

impl<const KIND: usize> Job for As<KIND> {
    const KIND: &'static str = KINDS[KIND];
    type Output = Body;

    fn requires() -> Requires {
        Requires::nothing().state::<Notes>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<Body> {
        let Self(duty) = self;
        let notes: &Notes = ctx.state();
        let body = Body {
            worker: notes.worker.clone(),
            began: time::to_millis(time::wall_clock()),
        };
        let lane = ctx.lane().map(ToString::to_string);
        let right =
            duty.kind == Self::KIND && duty.queue == ctx.queue().as_str() && duty.lane == lane;
        let begun = Begun {
            job: ctx.job_id().to_string(),
            kind: Self::KIND.to_owned(),
            lane,
            body: body.clone(),
            wrong: !right,
        };
        // A small write to a file that is opened for appending happens completely or not at all,
        // even if the process is killed.
        let line = format!("{}\n", serde_json::to_string(&begun)?);
        (&notes.file).write_all(line.as_bytes())?;
        if duty.long {
            ctx.progress(1, "began");
        }
        tokio::time::sleep(if duty.long { LONG } else { SHORT }).await;
        if duty.fails && ctx.attempt() == 1 {
            return Err(serde_json::to_string(&body)?.into());
        }
        Ok(body)
    }
}

/// Reads the notes of all bodies.
pub(crate) fn begun(notes: &Path) -> Vec<Begun> {
    let text = std::fs::read_to_string(notes).unwrap_or_default();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
