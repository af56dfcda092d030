//! Defines the collections and their indexes, and compares the stored indexes with these
//! definitions.

use mongodb::bson::{Bson, Document, doc};
use ratchet_core::model::LinkState;
use ratchet_core::{SchemaProblem, StoreErrorKind};

use crate::error::{Failure, Result};
use crate::expiry;
use crate::fair_limits;

/// The definition of an index.
pub(crate) struct Index {
    pub(crate) name: &'static str,
    keys: Document,
    unique: bool,
    /// Filter for the documents that the index covers. `None` means all documents.
    partial: Option<Document>,
    /// TTL of the documents, in seconds. The server deletes a document this long after the date in
    /// the index key. `None` for an index without TTL.
    expires_after: Option<i32>,
}

impl Index {
    /// Returns the description of the index, in the form that the command `createIndexes` accepts.
    pub(crate) fn document(&self) -> Document {
        let mut index = doc! { "name": self.name, "key": self.keys.clone() };
        if self.unique {
            index.insert("unique", true);
        }
        if let Some(partial) = &self.partial {
            index.insert("partialFilterExpression", partial.clone());
        }
        if let Some(seconds) = self.expires_after {
            index.insert("expireAfterSeconds", seconds);
        }
        index
    }

    /// Returns the first difference between a stored index and this definition, or `None` if they
    /// agree.
    fn differs(&self, stored: &Document) -> Option<&'static str> {
        let same = |field: &str, wanted: Option<&Document>| {
            let stored = stored.get_document(field).ok();
            stored.map(in_order) == wanted.map(in_order)
        };
        let hides = ["sparse", "hidden"]
            .iter()
            .any(|option| stored.get_bool(option).unwrap_or(false));
        if !same("key", Some(&self.keys)) {
            Some("has other keys")
        } else if stored.get_bool("unique").unwrap_or(false) != self.unique {
            Some(if self.unique {
                "is not unique"
            } else {
                "is unique"
            })
        } else if !same("partialFilterExpression", self.partial.as_ref()) {
            Some("covers other documents")
        } else if hides {
            Some("is sparse or hidden")
        } else if number(stored, "expireAfterSeconds") != self.expires_after.map(f64::from) {
            Some("deletes documents after a different time")
        } else if stored.contains_key("collation") {
            Some("has a collation")
        } else {
            None
        }
    }
}

/// Returns the number in a field as `f64`, whatever numeric type the field has.
fn number(document: &Document, field: &str) -> Option<f64> {
    plain(document).get_f64(field).ok()
}

/// Converts all numbers to doubles. So equal numbers of different types compare equal, as they do
/// on the server.
fn plain(document: &Document) -> Document {
    let value = |value: &Bson| match value {
        Bson::Document(inner) => Bson::Document(plain(inner)),
        Bson::Int32(number) => Bson::Double((*number).into()),
        #[expect(clippy::cast_precision_loss, reason = "these are small")]
        Bson::Int64(number) => Bson::Double(*number as f64),
        other => other.clone(),
    };
    document
        .iter()
        .map(|(key, inner)| (key.clone(), value(inner)))
        .collect()
}

/// Converts all numbers to doubles as [`plain`] does, and returns a list of the fields. Two such
/// lists are equal only if their fields have the same order.
fn in_order(document: &Document) -> Vec<(String, Bson)> {
    plain(document).into_iter().collect()
}

fn index(name: &'static str, keys: Document) -> Index {
    Index {
        name,
        keys,
        unique: false,
        partial: None,
        expires_after: None,
    }
}

impl Index {
    fn unique(mut self) -> Self {
        self.unique = true;
        self
    }

    fn of(mut self, partial: Document) -> Self {
        self.partial = Some(partial);
        self
    }

    fn expires_after(mut self, seconds: i32) -> Self {
        self.expires_after = Some(seconds);
        self
    }
}

/// Returns the names of all collections with this prefix, each with its indexes. The index on `_id`
/// is not included.
pub(crate) fn plan(prefix: &str) -> Vec<(String, Vec<Index>)> {
    let route = doc! { "queue": 1, "kind": 1, "capability": 1, "permit": 1, "fair": 1 };
    let plan = [
        ("jobs", job_indexes()),
        (
            "attempts",
            vec![index("attempt", doc! { "job": 1, "seq": 1 }).unique()],
        ),
        ("keys", key_indexes()),
        ("routes", vec![index("route", route).unique()]),
        ("pauses", vec![]),
        ("lanes", vec![]),
        ("nodes", vec![]),
        ("labels", vec![]),
        ("locks", vec![]),
        ("versions", vec![]),
        ("archive", archive_indexes()),
        ("recurring", recurring_indexes()),
        ("permits", vec![]),
        ("fair_limits", vec![index("queue", doc! { "_id.queue": 1 })]),
        ("freed", vec![index("route", doc! { "route": 1, "_id": 1 })]),
        ("rates", rate_indexes()),
        ("links", link_indexes()),
        ("parents", vec![]),
        ("batches", batch_indexes()),
        ("wakeups", vec![]),
        ("meta", vec![]),
    ];
    let named = |(name, indexes)| (format!("{prefix}{name}"), indexes);
    plan.map(named).into()
}

/// Returns the indexes of the collection `jobs`. Most indexes cover only jobs of some states, so
/// that each job costs few index writes. For example, a job is first in the index `claim`, then in
/// `running`, and then in `finished`.
fn job_indexes() -> Vec<Index> {
    vec![
        // Candidates of a claim. The state is a key although it is constant in this index.
        // Otherwise a claim would read every document to check the state. The queue is the last
        // key, so that a claim reads no documents to skip the jobs of paused queues in shared
        // routes.
        index(
            "claim",
            doc! { "state": 1, "route": 1, "priority": 1, "run_at": 1, "_id": 1, "queue": 1 },
        )
        .of(doc! { "state": 0 }),
        // The same for the jobs of each shared queue.
        index(
            "queue",
            doc! { "state": 1, "queue": 1, "route": 1, "priority": 1, "run_at": 1, "_id": 1 },
        )
        .of(doc! { "state": 0, "queue": { "$exists": true } }),
        // Jobs with a turn, in the order in which claims take them. The due time is the last key,
        // so that a claim reads no documents.
        index(
            "turn",
            doc! {
                "state": 1, "route": 1, "priority": 1,
                "turn": 1, "fair_key": 1, "_id": 1, "run_at": 1,
            },
        )
        .of(doc! { "state": 0, "turn": { "$exists": true } }),
        // The same jobs by fair key, for the last turn of each key and for its parked jobs.
        index(
            "key_turn",
            doc! {
                "state": 1, "route": 1, "priority": 1,
                "fair_key": 1, "turn": 1, "_id": 1, "fair_cost": 1,
            },
        )
        .of(doc! { "state": 0, "turn": { "$exists": true } }),
        // Pending jobs with a fair key that have no turn.
        index("asleep", doc! { "route": 1, "run_at": 1, "_id": 1 })
            .of(doc! { "state": 0, "fair_key": { "$exists": true }, "turn": Bson::Null }),
        // Running jobs whose fair keys have limits, and the freed entries that such jobs leave.
        // All is read from the index alone.
        index(
            fair_limits::INDEX,
            doc! { "limited": 1, "state": 1, "route": 1, "fair_key": 1, "_id": 1 },
        )
        .of(doc! { "limited": true }),
        // Running jobs by node, for reclaiming and for the claims of a node.
        index("running", doc! { "node": 1, "_id": 1 }).of(doc! { "state": 3 }),
        // Jobs that hold permits, of any route. Jobs that need no permit have no entry.
        index("held", doc! { "state": 1, "permit": 1 })
            .of(doc! { "state": 3, "permit": { "$exists": true } }),
        // Jobs that wait for something other than their due time.
        index(
            "waiting",
            doc! { "state": 1, "_id": 1, "route": 1, "queue": 1 },
        )
        .of(doc! { "state": { "$gte": 1, "$lte": 2 } }),
        // Finished jobs, for purges. The index includes the route and the queue, so that the server
        // can count jobs from the index alone.
        index(
            "finished",
            doc! { "state": 1, "finished_at": 1, "_id": 1, "route": 1, "queue": 1 },
        )
        .of(doc! { "state": { "$gte": 4 } }),
        // Dead letters and cancelled jobs, for listings. Most finished jobs are in neither of these
        // states.
        index("ended", doc! { "state": 1, "_id": 1 }).of(doc! { "state": { "$gte": 5 } }),
        // Jobs with tags, by tag and then id.
        index("tag", doc! { "tags": 1, "_id": 1 }).of(doc! { "tags": { "$exists": true } }),
        // Ensures that a unique key belongs to at most one unfinished job.
        index("unique_key", doc! { "live_key": 1 })
            .unique()
            .of(doc! { "live_key": { "$exists": true } }),
        // The unfinished jobs of a lane in order.
        index("lane", doc! { "lane_key": 1, "lane_seq": 1 })
            .unique()
            .of(doc! { "lane_key": { "$exists": true } }),
        // The jobs of a batch.
        index("batch", doc! { "batch": 1, "_id": 1 }).of(doc! { "batch": { "$exists": true } }),
        // Jobs that wait, or waited, for a signal.
        index("signal", doc! { "signal.key": 1, "signal.state": 1 })
            .of(doc! { "signal.key": { "$exists": true } }),
        // Jobs that wait for a signal, by its deadline.
        index("deadline", doc! { "signal.deadline": 1, "_id": 1 }).of(doc! { "signal.state": 0 }),
        // Waiting jobs that expire, the earliest first.
        index(expiry::INDEX, doc! { "expires_at": 1, "_id": 1 })
            .of(doc! { "state": expiry::waiting(), "expires_at": { "$exists": true } }),
    ]
}

fn link_indexes() -> Vec<Index> {
    vec![
        index("child", doc! { "child": 1, "place": 1 }).unique(),
        index("parent", doc! { "parent": 1, "child": 1, "place": 1 }),
        // The open links of a parent, for the jobs that wait for its end.
        index("open", doc! { "parent": 1, "child": 1 })
            .of(doc! { "state": i32::from(LinkState::Open.code()) }),
    ]
}

fn batch_indexes() -> Vec<Index> {
    // Ended batches; the batch that ended first comes first.
    vec![
        index("ended", doc! { "ended_at": 1, "_id": 1 })
            .of(doc! { "ended_at": { "$exists": true } }),
    ]
}

fn archive_indexes() -> Vec<Index> {
    // Archived jobs; the job that finished first comes first.
    vec![index("finished", doc! { "finished_at": 1, "_id": 1 })]
}

fn key_indexes() -> Vec<Index> {
    // Idempotency keys with a lifetime, which passes delete when they are free again.
    vec![index("until", doc! { "until": 1 }).of(doc! { "until": { "$exists": true } })]
}

fn rate_indexes() -> Vec<Index> {
    // A TTL index: the server deletes keys whose state has expired. No other collection may have a
    // TTL index: if the server deleted a lock, the fences of this lock
    // would start again at the lowest value.
    vec![index("idle", doc! { "idle_at": 1 }).expires_after(0)]
}

fn recurring_indexes() -> Vec<Index> {
    vec![
        // Unpaused definitions, in order of their next slots.
        index("due", doc! { "next_fire": 1, "_id": 1 })
            .of(doc! { "paused": false, "next_fire": { "$exists": true } }),
        // Claimed definitions, which are few.
        index("claimed", doc! { "claimed_until": 1 })
            .of(doc! { "claimed_until": { "$exists": true } }),
    ]
}

pub(crate) fn mismatch(problem: SchemaProblem, text: impl Into<String>) -> Failure {
    Failure::new(StoreErrorKind::SchemaMismatch(problem), text)
}

/// Returns the indexes that a collection lacks. Fails with [`StoreErrorKind::SchemaMismatch`] if a
/// stored index conflicts with the wanted indexes.
pub(crate) fn compare<'a>(
    collection: &str,
    wanted: &'a [Index],
    stored: &[Document],
) -> Result<Vec<&'a Index>> {
    for other in stored {
        let name = other.get_str("name").unwrap_or_default();
        let keys = other.get_document("key").map(in_order).unwrap_or_default();
        let ours = wanted.iter().find(|index| index.name == name);
        if let Some(problem) = ours.and_then(|index| index.differs(other)) {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!("the index {name} of {collection} {problem}, so it is not Ratchet's index"),
            ));
        }
        if ours.is_some() || name == "_id_" {
            continue;
        }
        if let Some(same) = wanted.iter().find(|index| in_order(&index.keys) == keys) {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "the index {name} of {collection} has the same keys as Ratchet's index {}, so \
                     Ratchet cannot create that index",
                    same.name
                ),
            ));
        }
        if number(other, "expireAfterSeconds").is_some() {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "the TTL index {name} of {collection} is not Ratchet's, and the server would \
                     delete documents because of it"
                ),
            ));
        }
        if other.get_bool("unique").unwrap_or(false) {
            return Err(mismatch(
                SchemaProblem::Altered,
                format!(
                    "the unique index {name} of {collection} is not Ratchet's, and would refuse jobs"
                ),
            ));
        }
    }
    let stands = |index: &&Index| {
        !stored
            .iter()
            .any(|other| other.get_str("name").is_ok_and(|name| name == index.name))
    };
    Ok(wanted.iter().filter(stands).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the indexes in the form in which the server lists them.
    fn stored() -> Vec<Document> {
        let mut all = vec![doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }];
        all.extend(job_indexes().iter().map(Index::document));
        all
    }

    fn problem(stored: &[Document]) -> String {
        match compare("jobs", &job_indexes(), stored) {
            Ok(_) => panic!("expected the indexes to be refused"),
            Err(failure) => {
                assert_eq!(
                    failure.kind,
                    StoreErrorKind::SchemaMismatch(SchemaProblem::Altered)
                );
                failure.to_string()
            }
        }
    }

    #[test]
    fn what_is_there_is_not_made_again() {
        let wanted = job_indexes();
        assert!(compare("jobs", &wanted, &stored()).unwrap().is_empty());
        let lacking = compare("jobs", &wanted, &stored()[..3]).unwrap();
        assert_eq!(lacking.len(), wanted.len() - 2);
        // `mongosh` stores all numbers as doubles.
        let mut by_hand = stored();
        by_hand[1].insert("partialFilterExpression", doc! { "state": 0.0 });
        assert!(compare("jobs", &wanted, &by_hand).unwrap().is_empty());
        // An index for the application's own queries does not conflict.
        by_hand.push(doc! { "v": 2, "key": { "payload": 1 }, "name": "mine" });
        assert!(compare("jobs", &wanted, &by_hand).unwrap().is_empty());
    }

    #[test]
    fn indexes_of_others_are_named() {
        let with = |index: &str, field: &str, value: Bson| {
            let mut all = stored();
            let place = all
                .iter()
                .position(|one| one.get_str("name").is_ok_and(|name| name == index));
            all[place.unwrap()].insert(field, value);
            problem(&all)
        };
        assert!(
            with("claim", "key", doc! { "state": 1 }.into())
                .contains("claim of jobs has other keys")
        );
        assert!(with("claim", "unique", true.into()).contains("is unique"));
        assert!(
            with("unique_key", "unique", false.into()).contains("unique_key of jobs is not unique")
        );
        let other = doc! { "state": 1 }.into();
        assert!(with("claim", "partialFilterExpression", other).contains("other documents"));
        assert!(with("running", "hidden", true.into()).contains("hidden"));
        assert!(with("finished", "expireAfterSeconds", 1.into()).contains("deletes"));
        assert!(
            with("running", "name", "theirs".into())
                .contains("theirs of jobs has the same keys as Ratchet's index running")
        );
        let mut rates: Vec<_> = rate_indexes().iter().map(Index::document).collect();
        let compared = |stored: &[Document]| compare("rates", &rate_indexes(), stored).is_ok();
        assert!(compared(&rates));
        rates[0].insert("expireAfterSeconds", 60.0);
        assert!(!compared(&rates));
        let mut all = stored();
        all.push(doc! { "key": { "payload": 1 }, "name": "mine", "unique": true });
        assert!(problem(&all).contains("unique index mine"));
        let mut all = stored();
        let old = doc! { "key": { "created_at": 1 }, "name": "old", "expireAfterSeconds": 60 };
        all.push(old);
        assert!(problem(&all).contains("TTL index old"));
    }
}
