//! The text in which stores keep a definition.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Definition;
use crate::error::InvalidInput;
use crate::json::Json;
use crate::model::spec_document::SpecDocument;
use crate::name::Name;
use crate::schedule::{Misfire, Overlap, Schedule};
use crate::time::{from_millis, to_millis};

#[derive(Serialize, Deserialize)]
struct Stored {
    schedule: Schedule,
    misfire: Misfire,
    overlap: Overlap,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starts_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ends_at: Option<i64>,
    job: SpecDocument,
}

impl Definition {
    /// Returns the text in which stores save the definition. The text does not contain the name,
    /// which stores save separately.
    ///
    /// # Errors
    /// [`InvalidInput`] if the definition cannot be serialized.
    pub fn to_stored(&self) -> Result<String, InvalidInput> {
        let stored = Stored {
            schedule: self.schedule.clone(),
            misfire: self.misfire,
            overlap: self.overlap,
            starts_at: self.starts_at.map(to_millis),
            ends_at: self.ends_at.map(to_millis),
            job: SpecDocument::of(&self.job),
        };
        let json = Json::encode("definition", &stored)?;
        Ok(json.as_str().to_owned())
    }

    /// Reads a definition from a text that [`to_stored`](Self::to_stored) returned in this version
    /// of Ratchet or an earlier one.
    ///
    /// A field that this version does not know is an error, at any depth. A later version may have
    /// added the field. If this version ignored the field, the definition might create wrong jobs.
    ///
    /// # Errors
    /// [`InvalidInput`] if the text is not a definition that this version can read.
    pub fn from_stored(name: Name, text: &str) -> Result<Self, InvalidInput> {
        let stored: Stored = serde_json::from_str(text)
            .map_err(|error| missing_cron(text).unwrap_or_else(|| unreadable(&error)))?;
        let definition = Self {
            name,
            schedule: stored.schedule,
            misfire: stored.misfire,
            overlap: stored.overlap,
            starts_at: stored.starts_at.map(from_millis),
            ends_at: stored.ends_at.map(from_millis),
            job: stored.job.into_spec()?,
        }
        .checked()?;
        let read = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        let known = serde_json::from_str(&definition.to_stored()?);
        let known = known.map_err(|error| unreadable(&error))?;
        match unknown_field(&read, &known) {
            None => Ok(definition),
            Some(field) => {
                let problem = format!(
                    "has the unknown field `{field}`, perhaps of a newer version of Ratchet"
                );
                Err(InvalidInput::new("definition", problem))
            }
        }
    }
}

/// Returns the name of a field that is in the stored document `read` but not in `known`, at any
/// depth. `known` is the document that this version writes for the same definition.
fn unknown_field<'a>(read: &'a Value, known: &Value) -> Option<&'a str> {
    match (read, known) {
        (Value::Object(read), Value::Object(known)) => {
            read.iter()
                .find_map(|(field, value)| match known.get(field) {
                    None => Some(field.as_str()),
                    Some(known) => unknown_field(value, known),
                })
        }
        (Value::Array(read), Value::Array(known)) => {
            let pairs = read.iter().zip(known);
            pairs
                .into_iter()
                .find_map(|(read, known)| unknown_field(read, known))
        }
        _ => None,
    }
}

/// Returns the error that names the missing feature, if the text has a cron schedule but this build
/// does not support cron.
fn missing_cron(text: &str) -> Option<InvalidInput> {
    let stored: Value = serde_json::from_str(text).ok()?;
    stored.get("schedule")?.get("cron")?;
    Schedule::cron("@daily", Schedule::DEFAULT_ZONE).err()
}

/// Returns an error with the position of serde's error, but without its text, which may quote a
/// payload.
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
    use std::time::Duration;

    use super::*;
    use crate::model::{NewJob, Recurring};
    use crate::priority::Priority;
    use crate::retry::RetryPolicy;

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
    fn what_was_written_before_is_read_and_what_a_later_version_added_is_refused() {
        let name = || Name::new("name", "n").unwrap();
        let read = |text: &str| Definition::from_stored(name(), text);
        // A definition with only the fields that every version wrote.
        let old = r#"{"schedule":{"every":{"millis":60000}},"misfire":"fire_once","overlap":"allow",
            "job":{"queue":"q","kind":"k","payload":"{\"any\":1}","retry":{"max_attempts":3,"backoff":{"fixed":{"delay":1000}},"jitter_percent":0}}}"#;
        assert_eq!(read(old).unwrap().job().route.queue, "q");
        for (place, later) in [
            (r#""overlap":"#, "at the top"),
            (r#""queue":"#, "of the job"),
            (r#""millis":"#, "of the schedule"),
            (r#""max_attempts":"#, "of the retries"),
            (r#""delay":"#, "of the backoff"),
        ] {
            let text = old.replacen(place, &format!(r#""later":[1],{place}"#), 1);
            assert_ne!(text, old, "{later}");
            let error = read(&text).unwrap_err();
            assert_eq!(error.field(), "definition", "{later}");
            assert!(error.to_string().contains("`later`"), "{later}: {error}");
        }
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
