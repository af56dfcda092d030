//! Builders of values that the test cases use.

use std::time::Duration;

use ratchet_core::model::{Outcome, PutRecurring, ReclaimRequest};
use ratchet_core::{Json, Name, NewJob, Recurring};

pub(crate) use crate::kit::{pause_of_kind, pause_of_queue};

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// Creates a name. Panics if `text` is not a valid name.
pub(crate) fn name(text: &str) -> Name {
    match Name::new("name", text) {
        Ok(name) => name,
        Err(error) => panic!("{text:?}: {error}"),
    }
}

/// Creates several names. Panics if a text is not a valid name.
pub(crate) fn names<const N: usize>(texts: [&str; N]) -> Vec<Name> {
    texts.into_iter().map(name).collect()
}

/// Creates a job without any options.
pub(crate) fn job() -> NewJob {
    NewJob::new("kind", "payload")
}

/// Creates `count` jobs without any options. Their payloads are the numbers from 0.
pub(crate) fn jobs(count: usize) -> Vec<NewJob> {
    (0..count)
        .map(|number| NewJob::new("kind", &number))
        .collect()
}

/// Parses a JSON document. Panics if `text` is not valid JSON.
pub(crate) fn json(text: &str) -> Json {
    match Json::parse("document", text) {
        Ok(json) => json,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// Creates the outcome of a failed body whose job is retried after `delay`.
pub(crate) fn retry(delay: Duration) -> Outcome {
    Outcome::Retry {
        delay,
        error: "it failed".to_owned(),
    }
}

/// Creates the outcome of a successful body. `text` is the result, as JSON.
pub(crate) fn result(text: &str) -> Outcome {
    Outcome::Succeeded {
        result: Some(json(text)),
    }
}

/// Creates a request with the default settings, which reclaims the claims of nodes without a
/// heartbeat for 15 s.
pub(crate) fn reclaim() -> ReclaimRequest {
    ReclaimRequest::new()
}

/// Creates the definition of a recurring job that fires every minute. The definition has no name.
pub(crate) fn minutely() -> Recurring {
    Recurring::every(MINUTE).job(job())
}

/// Creates a request that stores a recurring definition. Panics if the definition is invalid.
pub(crate) fn put(recurring: Recurring) -> PutRecurring {
    match recurring.check() {
        Ok(definition) => PutRecurring::new(definition),
        Err(error) => panic!("{error}"),
    }
}
