//! Values that cases are made of.

use std::time::Duration;

use ratchet_core::model::{Outcome, PutRecurring, ReclaimRequest};
use ratchet_core::{Json, Name, NewJob, Recurring};

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A name that is valid.
pub(crate) fn name(text: &str) -> Name {
    match Name::new("name", text) {
        Ok(name) => name,
        Err(error) => panic!("{text:?}: {error}"),
    }
}

/// Names that are valid.
pub(crate) fn names<const N: usize>(texts: [&str; N]) -> Vec<Name> {
    texts.into_iter().map(name).collect()
}

/// A job without anything special.
pub(crate) fn job() -> NewJob {
    NewJob::new("kind", "payload")
}

/// `count` jobs without anything special.
pub(crate) fn jobs(count: usize) -> Vec<NewJob> {
    (0..count)
        .map(|number| NewJob::new("kind", &number))
        .collect()
}

/// A JSON document.
pub(crate) fn json(text: &str) -> Json {
    match Json::parse("document", text) {
        Ok(json) => json,
        Err(error) => panic!("{text}: {error}"),
    }
}

/// An ending with another attempt.
pub(crate) fn retry(delay: Duration) -> Outcome {
    Outcome::Retry {
        delay,
        error: "it failed".to_owned(),
    }
}

/// A good ending with this result.
pub(crate) fn result(text: &str) -> Outcome {
    Outcome::Succeeded {
        result: Some(json(text)),
    }
}

/// A pass that takes back the claims of nodes that have been silent for 15 s.
pub(crate) fn reclaim() -> ReclaimRequest {
    ReclaimRequest::new()
}

/// A recurring job that comes every minute, but for a name.
pub(crate) fn minutely() -> Recurring {
    Recurring::every(MINUTE).job(job())
}

/// The put of a definition that is valid.
pub(crate) fn put(recurring: Recurring) -> PutRecurring {
    match recurring.check() {
        Ok(definition) => PutRecurring::new(definition),
        Err(error) => panic!("{error}"),
    }
}
