//! Looking at jobs.

use std::collections::{BTreeMap, HashMap};

use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, Hint, ReadConcern};
use ratchet_core::model::{
    Attempt, JobFilter, JobInput, JobOrder, JobPage, JobRecord, PageRequest, StateCounts,
};
use ratchet_core::{ClaimToken, InvalidInput, JobId, JobState, Json};

use crate::connection::Tx;
use crate::error::Result;
use crate::pipelines::{self, code};
use crate::row;
use crate::store::MongoStore;

/// How many attempts a job keeps with it. Beyond that, all but a few are moved.
pub(crate) const MOST_EMBEDDED: i64 = 48;
/// How many stay.
const STAY: usize = 8;

impl MongoStore {
    /// The jobs with these ids, each if it exists and can be shown.
    pub(crate) async fn read_jobs(&self, ids: &[JobId]) -> Result<Vec<Option<JobRecord>>> {
        let side = self.main();
        let filter = doc! { "_id": { "$in": pipelines::ids(ids) } };
        let options = FindOptions::builder()
            .projection(doc! { "history": 0 })
            .build();
        let rows = side.plain().find(&side.jobs, filter, options).await?;
        let jobs: HashMap<JobId, JobRecord> = self
            .shown(&rows)
            .await?
            .into_iter()
            .map(|job| (job.id, job))
            .collect();
        Ok(ids.iter().map(|id| jobs.get(id).cloned()).collect())
    }

    /// The jobs of these documents that can be shown.
    async fn shown(&self, rows: &[RawDocumentBuf]) -> Result<Vec<JobRecord>> {
        self.shown_by(&mut self.main().plain(), rows).await
    }

    /// The same, with what belongs to them as the transaction sees it.
    pub(crate) async fn shown_by(
        &self,
        on: &mut Tx<'_>,
        rows: &[RawDocumentBuf],
    ) -> Result<Vec<JobRecord>> {
        let mut jobs = Vec::with_capacity(rows.len());
        let mut linked = Vec::new();
        for row in rows {
            let route = row::int(row, "route");
            if let Ok(route) = route
                && route > i64::from(self.routes().seen())
            {
                self.routes().refresh(self.main()).await?;
            }
            let route = route.map(|route| self.routes().get(route));
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

    /// One page of the jobs that match.
    pub(crate) async fn read_page(
        &self,
        filter: &JobFilter,
        page: &PageRequest,
    ) -> Result<JobPage> {
        let states = filter.wanted_states();
        // One more than the page has, to know whether there is another page.
        let mut rows = self
            .selected(filter, &states, page, page.limit + 1, doc! { "history": 0 })
            .await?;
        let more = rows.len() > page.limit;
        rows.truncate(page.limit);
        let last = rows.last().filter(|_| more);
        let next = last.map(|row| row::job_id(row, "_id")).transpose()?;
        Ok(JobPage {
            jobs: self.shown(&rows).await?,
            next,
        })
    }

    /// The first `limit` jobs of the page, in these states, that match the rest of the filter.
    pub(crate) async fn selected(
        &self,
        filter: &JobFilter,
        states: &[JobState],
        page: &PageRequest,
        limit: usize,
        fields: Document,
    ) -> Result<Vec<RawDocumentBuf>> {
        let side = self.main();
        let Narrowed { mut wanted, hint } = self.narrowed(filter, states).await?;
        let (order, behind) = match page.order {
            JobOrder::OldestFirst => (1, "$gt"),
            JobOrder::NewestFirst => (-1, "$lt"),
        };
        if let Some(after) = page.after {
            wanted.insert("_id", doc! { behind: row::id(after) });
        }
        let options = FindOptions::builder()
            .sort(doc! { "_id": order })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(fields)
            .hint(Hint::Name(hint.unwrap_or("_id_").to_owned()))
            .build();
        side.plain().find(&side.jobs, wanted, options).await
    }

    /// How many jobs of each state match. [count.filter]
    pub(crate) async fn count_matching(&self, filter: &JobFilter) -> Result<StateCounts> {
        let side = self.main();
        let Narrowed { wanted, hint } = self.narrowed(filter, &filter.wanted_states()).await?;
        let stages = vec![
            doc! { "$match": wanted },
            doc! { "$group": { "_id": "$state", "count": { "$sum": 1_i64 } } },
        ];
        let rows = side
            .plain()
            .aggregate_by(&side.jobs, stages, ReadConcern::majority(), hint)
            .await?;
        let mut counts = StateCounts::new();
        for row in rows {
            let state = JobState::from_code(row::int(&row, "_id")?)?;
            counts.insert(state, row::count(&row, "count")?);
        }
        Ok(counts)
    }

    /// What matches the filter in these states.
    async fn narrowed(&self, filter: &JobFilter, states: &[JobState]) -> Result<Narrowed> {
        let mut wanted = Document::new();
        if filter.queue.is_some() || filter.kind.is_some() {
            self.routes().refresh(self.main()).await?;
            let routes = self.routes().matching(|route| {
                let queue = filter.queue.as_ref();
                let kind = filter.kind.as_ref();
                queue.is_none_or(|queue| *queue == route.queue)
                    && kind.is_none_or(|kind| *kind == route.kind)
            });
            wanted.insert("route", doc! { "$in": routes });
        }
        if let Some(tag) = &filter.tag {
            wanted.insert("tags", tag.as_str());
        }
        if let Some(batch) = filter.batch {
            wanted.insert("batch", row::id(batch));
        }
        if states.len() < JobState::ALL.len() {
            let codes: Vec<i32> = states.iter().map(|state| code(*state)).collect();
            wanted.insert("state", doc! { "$in": codes });
        }
        let rare = |state: &JobState| matches!(state, JobState::Failed | JobState::Cancelled);
        let hint = match (&filter.batch, &filter.tag) {
            (Some(_), _) => Some("batch"),
            (None, Some(_)) => Some("tag"),
            (None, None) => (!states.is_empty() && states.iter().all(rare)).then_some("ended"),
        };
        Ok(Narrowed { wanted, hint })
    }

    /// The inputs of the claims that still hold.
    pub(crate) async fn read_inputs(&self, tokens: &[ClaimToken]) -> Result<Vec<Option<JobInput>>> {
        let side = self.main();
        let jobs: Vec<JobId> = tokens.iter().map(|token| token.job).collect();
        let filter = doc! {
            "_id": { "$in": pipelines::ids(&jobs) },
            "state": code(JobState::Running),
        };
        let options = FindOptions::builder()
            .projection(doc! { "claim_seq": 1, "payload": 1, "checkpoint": 1 })
            .build();
        let rows = side.plain().find(&side.jobs, filter, options).await?;
        let mut inputs = HashMap::with_capacity(rows.len());
        for row in &rows {
            let token = ClaimToken::new(row::job_id(row, "_id")?, row::count(row, "claim_seq")?);
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

    /// The ended claims of a job: those that it keeps with it, and those that were moved. One may be
    /// in both places for a moment.
    pub(crate) async fn read_history(&self, job: JobId) -> Result<Vec<Attempt>> {
        let side = self.main();
        let mut on = side.plain();
        // In this order: one that is moved meanwhile is found at least once.
        let options = FindOptions::builder()
            .projection(doc! { "history": 1 })
            .build();
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

    /// Moves the older attempts of jobs with a long history into documents of their own, so that
    /// jobs stay small. First they are written there, then they are taken out of the job: whatever
    /// happens in between, none is lost, and it is done again at the next claim.
    pub(crate) async fn move_attempts(&self, jobs: &[JobId]) -> Result<()> {
        let side = self.main();
        let mut on = side.plain();
        for job in jobs {
            let this = doc! { "_id": row::id(*job) };
            let options = FindOptions::builder()
                .projection(doc! { "history": 1 })
                .build();
            let found = on.find(&side.jobs, this.clone(), options).await?;
            let Some(history) = found.first().and_then(|row| row.get_array("history").ok()) else {
                continue;
            };
            let mut moved = Vec::new();
            for attempt in history {
                if let Some(attempt) = attempt?.as_document() {
                    let mut attempt = Document::try_from(attempt)?;
                    attempt.insert("job", row::id(*job));
                    moved.push(attempt);
                }
            }
            moved.truncate(moved.len().saturating_sub(STAY));
            let seqs: Vec<Bson> = moved
                .iter()
                .filter_map(|one| one.get("seq").cloned())
                .collect();
            for attempt in moved {
                let same = doc! {
                    "job": attempt.get("job").cloned(),
                    "seq": attempt.get("seq").cloned(),
                };
                let put = doc! { "$setOnInsert": attempt };
                match on.change(&side.attempts, same, put, true).await {
                    Err(failure) if failure.is_duplicate() => {}
                    put => drop(put?),
                }
            }
            let take_out = doc! { "$pull": { "history": { "seq": { "$in": seqs } } } };
            on.update_one(&side.jobs, this, take_out).await?;
        }
        Ok(())
    }
}

/// A filter as the server takes it.
struct Narrowed {
    wanted: Document,
    /// The index that has the fewest entries beside those that match; none: any.
    hint: Option<&'static str>,
}

/// The ended claims of a job: those in its document, and those that were moved.
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
        Err(error) => tracing::warn!(%job, %error, "an attempt cannot be read"),
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
