//! The jobs of the newsletter.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratchet::{BoxError, Job, JobContext, JobError, JobResult, NewJob, Requires, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Time from the sign-up to the reminder to confirm the address.
pub const REMIND_AFTER: Duration = Duration::from_secs(3 * 24 * 3_600);

/// A simulated mail server, and a simulated table of confirmed addresses.
#[derive(Clone, Debug, Default)]
pub struct Office(Arc<Mutex<Books>>);

/// The data in an [`Office`].
#[derive(Debug, Default)]
pub struct Books {
    /// The letters that were sent, each as `subject: address`.
    pub sent: Vec<String>,
    /// The addresses that customers have confirmed.
    pub confirmed: BTreeSet<String>,
    /// The number of letters that the mail server will refuse before it accepts a letter.
    pub refusals: u32,
}

impl Office {
    /// Locks the data, and returns the guard.
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// A job that enqueues a welcome letter for a new customer, and schedules a reminder.
#[derive(Debug, Deserialize, Serialize)]
pub struct SignUp {
    /// The address of the customer.
    pub address: String,
}

impl Job for SignUp {
    const KIND: &'static str = "sign_up";
    type Output = ();

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let Self { address } = self;
        if !address.contains('@') {
            return Err(JobError::discard(format!(
                "{address} is not an e-mail address"
            )));
        }
        ctx.progress(50, "the letter is written");
        let letter = Letter {
            address: address.clone(),
            subject: "welcome".to_owned(),
        };
        // The body may run twice. The idempotency keys ensure that each of these jobs is stored
        // only once.
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

/// A job that sends a letter.
///
/// In the first release, the kind of this job was `send_mail`. Its payload had a field `to` instead
/// of `address`, and no subject, because all letters were welcome letters.
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

/// A job that reminds a customer to confirm the address. The job cancels itself if the address is
/// already confirmed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Remind {
    /// The address of the customer.
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
