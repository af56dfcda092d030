//! Values that the cases use.

use std::time::Duration;

use ratchet_core::model::{Outcome, PutRecurring, ReclaimRequest};
use ratchet_core::{Json, Name, NewJob, Recurring};

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Returns a valid name.
pub(crate) fn name(text: &str) -> Name {
    match Name::new("name", text) {
        Ok(name) => name,
        Err(error) => panic!("{text:?}: {error}"),
    }
}

/// Returns valid names.
pub(crate) fn names<const N: usize>(texts: [&str; N]) -> Vec<Name> {
    texts.into_iter().map(name).collect()
}

/// Returns a plain job.
pub(crate) fn job() -> NewJob {
    NewJob::new("kind", "payload")
}

/// Returns `count` plain jobs.
pub(crate) fn jobs(count: usize) -> Vec<NewJob> {
    (0..count)
        .map(|number| NewJob::new("kind", &number))
        .collect()
}

/// Returns a JSON document.
pub(crate) fn json(text: &str) -> Json {
    match Json::parse("document", text) {
        Ok(json) => json,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Returns an outcome that retries.
pub(crate) fn retry(delay: Duration) -> Outcome {
    Outcome::Retry {
        delay,
        error: "it failed".to_owned(),
    }
}

/// Returns a success with this result.
pub(crate) fn result(text: &str) -> Outcome {
    Outcome::Succeeded {
        result: Some(json(text)),
    }
}

/// Returns a pass that reclaims the claims of nodes without a heartbeat for 15 s.
pub(crate) fn reclaim() -> ReclaimRequest {
    ReclaimRequest::new()
}

/// Returns a recurring job without a name that fires every minute.
pub(crate) fn minutely() -> Recurring {
    Recurring::every(MINUTE).job(job())
}

/// Returns a request that puts a definition, which must be valid.
pub(crate) fn put(recurring: Recurring) -> PutRecurring {
    match recurring.check() {
        Ok(definition) => PutRecurring::new(definition),
        Err(error) => panic!("{error}"),
    }
}
