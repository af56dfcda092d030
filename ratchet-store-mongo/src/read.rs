//! Reads jobs.

use std::collections::{BTreeMap, HashMap};

use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::model::{Attempt, Detail, JobInput, JobRecord};
use ratchet_core::{ClaimToken, InvalidInput, JobId, JobState, Json};

use crate::bulk;
use crate::connection::Tx;
use crate::error::Result;
use crate::pipelines::{self, code};
use crate::row;
use crate::store::MongoStore;

/// Maximum number of attempts that are embedded in a job's document. If there are more, all but the
/// last [`STAY`] are moved to the collection `attempts`.
pub(crate) const MOST_EMBEDDED: i64 = 48;
/// Number of attempts that remain embedded after older attempts were moved.
const STAY: usize = 8;

/// Returns the projection that omits the fields which are not part of `detail`. [get.outline]
fn without(detail: Detail) -> Document {
    match detail {
        Detail::Whole => doc! { "history": 0 },
        Detail::Outline => doc! { "history": 0, "payload": 0, "checkpoint": 0, "result": 0 },
    }
}

impl MongoStore {
    /// Returns the job for each of these ids. An entry is `None` if the job does not exist or
    /// cannot be read.
    pub(crate) async fn read_jobs(
        &self,
        ids: &[JobId],
        detail: Detail,
    ) -> Result<Vec<Option<JobRecord>>> {
        let side = self.main();
        let filter = doc! { "_id": { "$in": pipelines::ids(ids) } };
        let options = row::fields(without(detail));
        let mut on = side.plain();
        let rows = on.find(&side.jobs, filter, options).await?;
        let jobs = self.shown_by(&mut on, &rows).await?.into_iter();
        let jobs: HashMap<JobId, JobRecord> = jobs
            .map(|job| match detail {
                Detail::Whole => (job.id, job),
                Detail::Outline => (job.id, job.outline()),
            })
            .collect();
        Ok(ids.iter().map(|id| jobs.get(id).cloned()).collect())
    }

    /// Returns the jobs of those documents that can be read. Adds their links, as the transaction
    /// sees them, and their signals.
    pub(crate) async fn shown_by(
        &self,
        on: &mut Tx<'_>,
        rows: &[RawDocumentBuf],
    ) -> Result<Vec<JobRecord>> {
        let mut jobs = Vec::with_capacity(rows.len());
        let mut linked = Vec::new();
        self.routes().check(self.main()).await?;
        for row in rows {
            let route = row::int(row, "route");
            if let Ok(route) = route
                && route > i64::from(self.routes().seen())
            {
                self.routes().refresh(self.main()).await?;
            }
            let route = route.map(|route| self.routes().get(route, row::queue(row)));
            let route = route
                .and_then(|route| route.ok_or_else(|| InvalidInput::new("route", "is missing")));
            match route.and_then(|route| row::job_record(row, route)) {
                Ok(job) => {
                    linked.extend(row::flag(row, "links").then_some(job.id));
                    jobs.push(job);
                }
                Err(error) => {
                    let job = row::job_id(row, "_id").map(|id| id.to_string());
                    let job = job.unwrap_or_default();
                    tracing::warn!(job, %error, "a stored job cannot be read");
                }
            }
        }
        self.show_links(on, &linked, &mut jobs).await?;
        Ok(jobs)
    }

    /// Returns the input of the job for each token whose claim still runs, and `None` for every
    /// other token.
    pub(crate) async fn read_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        let side = self.main();
        let jobs: Vec<JobId> = tokens.iter().map(|token| token.job).collect();
        let filter = doc! {
            "_id": { "$in": pipelines::ids(&jobs) },
            "state": code(JobState::Running),
        };
        let options = row::fields(
            doc! { "claim_seq": 1, "node": 1, "claimed_at": 1, "payload": 1, "checkpoint": 1 },
        );
        let rows = side.plain().find(&side.jobs, filter, options).await?;
        let mut inputs = HashMap::with_capacity(rows.len());
        for row in &rows {
            let Ok(token) = row::token(row) else {
                continue;
            };
            let input = JobInput {
                payload: row::json(row, "payload").unwrap_or_else(|| Json::from_stored("missing")),
                checkpoint: row::json(row, "checkpoint"),
            };
            inputs.insert(token, input);
        }
        Ok(tokens
            .iter()
            .map(|token| inputs.get(token).cloned())
            .collect())
    }

    /// Returns the ended claims of a job, both the embedded attempts and those in the collection
    /// `attempts`. Each attempt is returned once, even if it is being moved.
    pub(crate) async fn read_history(&self, job: JobId) -> Result<Vec<Attempt>> {
        let side = self.main();
        let mut on = side.plain();
        // Read the job before the collection `attempts`. An attempt that is moved between the two
        // reads is then found at least once.
        let options = row::fields(doc! { "history": 1 });
        let found = on
            .find(&side.jobs, doc! { "_id": row::id(job) }, options)
            .await?;
        let moved = on
            .find(
                &side.attempts,
                doc! { "job": row::id(job) },
                FindOptions::default(),
            )
            .await?;
        let Some(found) = found.first() else {
            return Ok(Vec::new());
        };
        attempts(found, moved.iter(), job)
    }

    /// Moves older attempts of jobs with a long history to the collection `attempts`, to keep the
    /// job documents small. The function first writes the attempts there, and then removes them
    /// from the jobs. So a failure in between loses no attempt. The next claim then repeats the
    /// move.
    pub(crate) async fn move_attempts(&self, jobs: &[JobId]) -> Result<()> {
        let side = self.main();
        let mut on = side.plain();
        let these = doc! { "_id": { "$in": pipelines::ids(jobs) } };
        let options = row::fields(doc! { "history": 1 });
        let (mut put, mut take_out) = (Vec::new(), Vec::new());
        for row in on.find(&side.jobs, these, options).await? {
            let job = row::id(row::job_id(&row, "_id")?);
            let Ok(history) = row.get_array("history") else {
                continue;
            };
            let mut moved = Vec::new();
            for attempt in history {
                if let Some(attempt) = attempt?.as_document() {
                    let mut attempt = Document::try_from(attempt)?;
                    attempt.insert("job", job.clone());
                    moved.push(attempt);
                }
            }
            moved.truncate(moved.len().saturating_sub(STAY));
            let mut seqs = Vec::with_capacity(moved.len());
            for attempt in moved {
                let seq = attempt.get("seq").cloned();
                let same = doc! { "job": job.clone(), "seq": seq.clone() };
                let new = doc! { "$setOnInsert": attempt };
                put.push(doc! { "q": same, "u": new, "upsert": true });
                seqs.extend(seq);
            }
            let these = doc! { "$pull": { "history": { "seq": { "$in": seqs } } } };
            take_out.push(doc! { "q": { "_id": job }, "u": these });
        }
        for put in put.chunks(bulk::MOST) {
            match on.updates(&side.attempts, put.to_vec()).await {
                // Another call is moving the same attempts, and may not have finished.
                Err(failure) if failure.is_duplicate() => return Ok(()),
                put => drop(put?),
            }
        }
        on.updates(&side.jobs, take_out).await?;
        Ok(())
    }
}

/// Returns the ended claims of a job, in order. `found` is the job's document with the embedded
/// attempts, and `moved` are the attempts that were moved out of it. An attempt in both is returned
/// once.
pub(crate) fn attempts<'a>(
    found: &RawDocument,
    moved: impl Iterator<Item = &'a RawDocumentBuf>,
    job: JobId,
) -> Result<Vec<Attempt>> {
    let mut attempts = BTreeMap::new();
    let mut read = |row: &RawDocument| match row::attempt(row) {
        Ok(attempt) => {
            attempts.insert(attempt.seq, attempt);
        }
        Err(error) => tracing::warn!(%job, %error, "skipped a stored attempt that cannot be read"),
    };
    moved.for_each(|row| read(row));
    if let Ok(history) = found.get_array("history") {
        for attempt in history {
            if let Some(attempt) = attempt?.as_document() {
                read(attempt);
            }
        }
    }
    Ok(attempts.into_values().collect())
}
