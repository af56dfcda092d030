//! The text in which stores keep a definition.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Definition;
use crate::error::InvalidInput;
use crate::json::Json;
use crate::model::JobSpec;
use crate::name::Name;
use crate::priority::Priority;
use crate::retry::RetryPolicy;
use crate::route::Route;
use crate::schedule::{Misfire, Overlap, Schedule};
use crate::time::{duration_millis, from_millis, to_millis};

#[derive(Serialize, Deserialize)]
struct Stored {
    schedule: Schedule,
    misfire: Misfire,
    overlap: Overlap,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starts_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_at: Option<i64>,
    job: Template,
}

/// What its jobs have in common.
#[derive(Serialize, Deserialize)]
struct Template {
    queue: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capability: Option<String>,
    priority: u8,
    retry: RetryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stall_timeout: Option<u64>,
    payload: Box<RawValue>,
}

impl Definition {
    /// The text in which stores keep it, beside its name.
    ///
    /// # Errors
    /// If it cannot be written as text.
    pub fn to_stored(&self) -> Result<String, InvalidInput> {
        let stored = Stored {
            schedule: self.schedule.clone(),
            misfire: self.misfire,
            overlap: self.overlap,
            starts_at: self.starts_at.map(to_millis),
            ends_at: self.ends_at.map(to_millis),
            job: Template::of(&self.job)?,
        };
        let json = Json::encode("definition", &stored)?;
        Ok(json.as_str().to_owned())
    }

    /// The definition that [`to_stored`](Self::to_stored) wrote.
    ///
    /// # Errors
    /// If it wrote no such text.
    pub fn from_stored(name: Name, text: &str) -> Result<Self, InvalidInput> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        Self {
            name,
            schedule: stored.schedule,
            misfire: stored.misfire,
            overlap: stored.overlap,
            starts_at: stored.starts_at.map(from_millis),
            ends_at: stored.ends_at.map(from_millis),
            job: stored.job.into_spec()?,
        }
        .checked()
    }
}

impl Template {
    fn of(spec: &JobSpec) -> Result<Self, InvalidInput> {
        // Every field by name: a new one has to be stored here or refused by `Definition::checked`.
        let JobSpec {
            route,
            payload,
            priority,
            retry,
            timeout,
            stall_timeout,
            unique_key: None,
            idempotency_key: None,
            lane: None,
            trace: None,
            recurring: None,
        } = spec
        else {
            return Err(InvalidInput::new("job", "has what is one job's"));
        };
        let millis = |duration: &Duration| duration_millis(*duration).unsigned_abs();
        Ok(Self {
            queue: route.queue.to_string(),
            kind: route.kind.to_string(),
            capability: route.capability.as_ref().map(ToString::to_string),
            priority: priority.level(),
            retry: *retry,
            timeout: timeout.as_ref().map(millis),
            stall_timeout: stall_timeout.as_ref().map(millis),
            payload: RawValue::from_string(payload.as_str().to_owned())
                .map_err(|error| unreadable(&error))?,
        })
    }

    fn into_spec(self) -> Result<JobSpec, InvalidInput> {
        let route = Route::from_texts(
            &self.queue,
            &self.kind,
            self.capability.as_deref().unwrap_or_default(),
        )?;
        let mut spec = JobSpec::new(route, Json::from_stored(self.payload.get()));
        spec.priority = Priority::from_level(self.priority.into())?;
        self.retry.validate()?;
        spec.retry = self.retry;
        spec.timeout = self.timeout.map(Duration::from_millis);
        spec.stall_timeout = self.stall_timeout.map(Duration::from_millis);
        Ok(spec)
    }
}

/// What serde says without the text itself, which may be a payload.
fn unreadable(error: &serde_json::Error) -> InvalidInput {
    let problem = format!(
        "cannot be read at line {}, column {}",
        error.line(),
        error.column()
    );
    InvalidInput::new("definition", problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewJob, Recurring};

    fn round_trip(recurring: Recurring) {
        let definition = recurring.check().unwrap();
        let text = definition.to_stored().unwrap();
        let again = Definition::from_stored(definition.name().clone(), &text).unwrap();
        assert_eq!(again, definition);
        assert_eq!(again.to_stored().unwrap(), text);
    }

    #[test]
    fn definitions_round_trip_through_stores() {
        round_trip(
            Recurring::cron("*/5 * * * *")
                .job(NewJob::new("kind", &()))
                .named("n"),
        );
        round_trip(
            Recurring::every(Duration::from_millis(1_001))
                .job(
                    NewJob::new("kind", &("ü\0\"", 1.5))
                        .queue("Größe")
                        .capability("gpu")
                        .priority(Priority::Critical)
                        .retry(RetryPolicy::never())
                        .timeout(Duration::from_nanos(1))
                        .stall_timeout(Duration::from_secs(7)),
                )
                .misfire(Misfire::CatchUp(3))
                .overlap(Overlap::Skip)
                .starts_at(from_millis(1))
                .ends_at(from_millis(2))
                .named("größe"),
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_without_its_content() {
        let name = Name::new("name", "n").unwrap();
        for text in ["", "{", r#"{"secret":1}"#, "[]"] {
            let error = Definition::from_stored(name.clone(), text).unwrap_err();
            assert_eq!(error.field(), "definition");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
