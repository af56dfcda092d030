//! The jobs of the newsletter.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratchet::{BoxError, Job, JobContext, JobError, JobResult, NewJob, Requires, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long after the sign-up a customer is reminded to confirm the address.
pub const REMIND_AFTER: Duration = Duration::from_secs(3 * 24 * 3_600);

/// Represents the mail server and the table of readers.
#[derive(Clone, Debug, Default)]
pub struct Office(Arc<Mutex<Books>>);

/// The data of the office.
#[derive(Debug, Default)]
pub struct Books {
    /// The letters that were sent, as `subject: address`.
    pub sent: Vec<String>,
    /// Addresses that were confirmed.
    pub confirmed: BTreeSet<String>,
    /// How many letters the server refuses before it accepts one.
    pub refusals: u32,
}

impl Office {
    /// Returns the current data.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// Welcomes a customer who signed up, and schedules a reminder.
#[derive(Debug, Deserialize, Serialize)]
pub struct SignUp {
    /// The address for the letters.
    pub address: String,
}

impl Job for SignUp {
    const KIND: &'static str = "sign_up";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let Self { address } = self;
        if !address.contains('@') {
            return Err(JobError::discard(format!("{address} is not an address")));
        }
        ctx.progress(50, "the letter is written");
        let letter = Letter {
            address: address.clone(),
            subject: "welcome".to_owned(),
        };
        // The body may run twice, but these jobs are stored only once.
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

/// Sends a letter.
///
/// In the first release this job was called `send_mail`. Its payload had the field `to` and no
/// subject, because all letters were welcomes.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Letter {
    /// The address of the recipient.
    pub address: String,
    /// The subject of the letter.
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

/// Reminds a customer whose address is not confirmed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Remind {
    /// The address for the letter.
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
