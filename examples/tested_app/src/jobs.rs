//! The jobs of the newsletter.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratchet::{BoxError, Job, JobContext, JobError, JobResult, NewJob, Requires, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// When a customer without a confirmation is reminded.
pub const REMIND_AFTER: Duration = Duration::from_secs(3 * 24 * 3_600);

/// Stands for the mail server and for the table of readers.
#[derive(Clone, Debug, Default)]
pub struct Office(Arc<Mutex<Books>>);

/// What the office knows.
#[derive(Debug, Default)]
pub struct Books {
    /// Letters that were sent, as `subject: address`.
    pub sent: Vec<String>,
    /// Addresses that were confirmed.
    pub confirmed: BTreeSet<String>,
    /// How many letters the server refuses before it takes one.
    pub refusals: u32,
}

impl Office {
    /// What it knows at present.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// A customer signed up.
#[derive(Debug, Deserialize, Serialize)]
pub struct SignUp {
    /// Where the letters go.
    pub address: String,
}

impl Job for SignUp {
    const KIND: &'static str = "sign_up";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let Self { address } = self;
        if !address.contains('@') {
            return Err(JobError::discard(format!("{address} is no address")));
        }
        ctx.progress(50, "the letter is written");
        let letter = Letter {
            address: address.clone(),
            subject: "welcome".to_owned(),
        };
        // The body may run twice; these jobs are stored once.
        let key = |what: &str| format!("{what} {address}");
        ctx.enqueue(letter.into_job().idempotency_key(&key("welcome")))
            .await?;
        let remind = Remind {
            address: address.clone(),
        };
        let remind = remind.into_job().delay(REMIND_AFTER);
        ctx.enqueue(remind.idempotency_key(&key("remind"))).await?;
        Ok(())
    }
}

/// A letter is to be sent.
///
/// In the first release it was called `send_mail`, and its payload had the field `to` and no
/// subject, since all letters were welcomes.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Letter {
    /// Where it goes.
    pub address: String,
    /// What it is about.
    pub subject: String,
}

impl Job for Letter {
    const KIND: &'static str = "letter";
    const ALIASES: &'static [&'static str] = &["send_mail"];
    const VERSION: u32 = 2;
    type Output = String;

    fn upcast(version: u32, mut payload: Value) -> Result<Value, BoxError> {
        if version < 2 {
            payload["address"] = payload["to"].take();
            payload["subject"] = json!("welcome");
        }
        Ok(payload)
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Office>()
    }

    fn defaults(job: NewJob) -> NewJob {
        job.queue("post")
            .retry(RetryPolicy::fixed(3, Duration::from_secs(60)))
    }

    async fn run(self, ctx: JobContext) -> JobResult<String> {
        let mut books = ctx.state::<Office>().books();
        if books.refusals > 0 {
            books.refusals -= 1;
            return Err("the server is busy".into());
        }
        let line = format!("{}: {}", self.subject, self.address);
        books.sent.push(line.clone());
        Ok(line)
    }
}

/// A customer may have to be reminded.
#[derive(Debug, Deserialize, Serialize)]
pub struct Remind {
    /// Where the letter goes.
    pub address: String,
}

impl Job for Remind {
    const KIND: &'static str = "remind";
    type Output = ();

    fn requires() -> Requires {
        Requires::nothing().state::<Office>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        if ctx
            .state::<Office>()
            .books()
            .confirmed
            .contains(&self.address)
        {
            return Err(JobError::cancel());
        }
        let letter = Letter {
            address: self.address,
            subject: "please confirm".to_owned(),
        };
        ctx.enqueue(letter.into_job()).await?;
        Ok(())
    }
}
