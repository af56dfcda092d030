//! Reads the readable parts of the document of a damaged job.

use serde_json::{Map, Value, json};

use crate::error::InvalidInput;
use crate::model::StoredJob;

/// The kind of a job whose kind cannot be read.
const UNREADABLE: &str = "unreadable";

/// A stored job of which a part cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedJob {
    /// The job. Every field that cannot be read has its default value. If the job has no last
    /// error, `problem` is its last error.
    pub job: StoredJob,
    /// The first problem that was found when the job was read.
    pub problem: InvalidInput,
    /// Whether reads return the job. They leave out a job whose kind cannot be read, until a store
    /// has ended the job and stored it with the kind `unreadable`. Such a job can be deleted.
    pub can_be_shown: bool,
}

impl StoredJob {
    /// Reads what is readable of a document that [`decode`](Self::decode) refuses. So an operator
    /// can see and delete the job, and a store can end it.
    ///
    /// Returns `None` if the job can be read whole, or if the version of the format, the id, the
    /// queue or the state cannot be read.
    ///
    /// ```
    /// use ratchet::NewJob;
    /// use ratchet_core::model::StoredJob;
    ///
    /// let job = StoredJob::enqueued(&NewJob::new("mail", &1).lane("l"), 1_000);
    /// let damaged = job.encode()?.replace("\"lane\":\"l\"", "\"lane\":[]");
    /// let salvaged = StoredJob::salvage(&damaged).expect("the lane is a detail");
    /// assert_eq!(salvaged.job.record.spec.lane, None);
    /// assert_eq!(salvaged.job.record.spec.payload, job.record.spec.payload);
    /// # Ok::<(), ratchet_core::InvalidInput>(())
    /// ```
    #[must_use]
    pub fn salvage(document: &str) -> Option<SalvagedJob> {
        let problem = Self::decode(document).err()?;
        let Ok(Value::Object(mut fields)) = serde_json::from_str(document) else {
            return None;
        };
        let mut readable = Map::new();
        for required in ["v", "id", "queue", "state"] {
            readable.insert(required.to_owned(), fields.remove(required)?);
        }
        for (field, default) in [
            ("kind", json!(UNREADABLE)),
            ("payload", json!("null")),
            ("run_at", json!(0)),
            ("created_at", json!(0)),
        ] {
            readable.insert(field.to_owned(), default);
        }
        let decode = |fields: &Map<String, Value>| Self::decode(&json!(fields).to_string());
        let mut job = decode(&readable).ok()?;
        let mut can_be_shown = false;
        // `links` has the states of the links in `after`. So the states are read only together with
        // the links.
        let links = fields.remove("links");
        for (field, value) in fields {
            let mut more = readable.clone();
            if field == "after" {
                more.extend(links.clone().map(|links| ("links".to_owned(), links)));
            }
            let is_kind = field == "kind";
            more.insert(field, value);
            if let Ok(read) = decode(&more) {
                (job, readable) = (read, more);
                can_be_shown |= is_kind;
            }
        }
        let error = &mut job.record.last_error;
        error.get_or_insert_with(|| problem.of_stored_job());
        Some(SalvagedJob {
            job,
            problem,
            can_be_shown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job_document::tests::full;
    use crate::model::{LinkState, NewJob};

    #[test]
    fn each_field_can_be_damaged_alone() {
        let mut job = StoredJob::enqueued(&NewJob::new("kind", &1), 1);
        job.record = full().0;
        job.links = vec![LinkState::Open; 2];
        let document: Map<String, Value> = serde_json::from_str(&job.encode().unwrap()).unwrap();
        let mut hidden = Vec::new();
        for field in document.keys().filter(|field| *field != "links") {
            let mut damaged = document.clone();
            damaged[field] = json!({"is": "damaged"});
            let text = json!(damaged).to_string();
            let Some(salvaged) = StoredJob::salvage(&text) else {
                assert!(["v", "id", "queue", "state"].contains(&&**field), "{field}");
                continue;
            };
            if !salvaged.can_be_shown {
                hidden.push(field.as_str());
            }
            // All fields except the damaged one are read.
            let again = salvaged.job.encode().unwrap();
            let again: Map<String, Value> = serde_json::from_str(&again).unwrap();
            for (other, value) in document.iter().filter(|(other, _)| *other != field) {
                let depends = [
                    ("after", "links"),
                    ("signal_deadline", "delivered"),
                    ("traceparent", "tracestate"),
                ];
                if !depends.contains(&(field, other)) {
                    assert_eq!(again.get(other), Some(value), "{other} without {field}");
                }
            }
        }
        assert_eq!(hidden, ["kind"]);
        assert_eq!(StoredJob::salvage(&job.encode().unwrap()), None);
        assert_eq!(StoredJob::salvage("{"), None);
    }
}
