//! Finds and counts jobs by filter, with the index that fits the filter.

use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, Hint, ReadConcern};
use ratchet_core::model::{Among, JobFilter, JobOrder, PageRequest, StateCounts};
use ratchet_core::{JobId, JobState};

use crate::connection::Tx;
use crate::error::Result;
use crate::pipelines::{any_job_id, code};
use crate::row;
use crate::store::MongoStore;

/// An index that contains all jobs of some states, together with their routes. Queries on the index
/// read no documents, except those of the few running jobs.
struct StateIndex {
    index: &'static str,
    states: &'static [JobState],
}

const STATE_INDEXES: [StateIndex; 4] = [
    StateIndex {
        index: "claim",
        states: &[JobState::Pending],
    },
    StateIndex {
        index: "running",
        states: &[JobState::Running],
    },
    StateIndex {
        index: "waiting",
        states: &[JobState::Blocked, JobState::Paused],
    },
    StateIndex {
        index: "finished",
        states: &[JobState::Succeeded, JobState::Failed, JobState::Cancelled],
    },
];

/// The number of jobs with this state, route and queue. Only the jobs of shared routes name a
/// queue.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) state: i32,
    pub(crate) route: i32,
    pub(crate) queue: Option<String>,
    pub(crate) jobs: u64,
}

impl MongoStore {
    /// Returns the ids of the jobs that match the filter, for one page.
    pub(crate) async fn select_jobs(
        &self,
        filter: &JobFilter,
        page: &PageRequest,
    ) -> Result<Vec<JobId>> {
        let select = || self.select_once(filter, page);
        match by_route(filter) {
            true => self.with_routes(select).await,
            false => select().await,
        }
    }

    async fn select_once(&self, filter: &JobFilter, page: &PageRequest) -> Result<Vec<JobId>> {
        let side = self.main();
        let mut wanted = self.narrowed(filter);
        let index = match Among::of(filter) {
            Among::Unfinished => {
                let front = self.front(&wanted, page).await?;
                if front.len() == page.limit {
                    return Ok(front);
                }
                return self.unfinished_ids(&wanted, filter, page).await;
            }
            Among::Batch => "batch",
            Among::Tagged => "tag",
            Among::Ended => "ended",
            _ => "_id_",
        };
        wanted.extend(behind(page));
        let options = FindOptions::builder()
            .sort(doc! { "_id": order(page) })
            .limit(i64::try_from(page.limit).unwrap_or(i64::MAX))
            .projection(doc! { "_id": 1 })
            .hint(Hint::Name(index.to_owned()))
            .build();
        let found = side.plain().find(&side.jobs, wanted, options).await?;
        Ok(row::job_ids(&found))
    }

    /// Searches a limited number of jobs after the previous page, and returns those that match. The
    /// result may have fewer jobs than the page allows, although more jobs match.
    async fn front(&self, wanted: &Document, page: &PageRequest) -> Result<Vec<JobId>> {
        let side = self.main();
        let most = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let stages = vec![
            doc! { "$match": behind(page) },
            doc! { "$sort": { "_id": order(page) } },
            doc! { "$limit": most(Among::front(page.limit)) },
            doc! { "$match": wanted.clone() },
            doc! { "$limit": most(page.limit) },
            doc! { "$project": { "_id": 1 } },
        ];
        let mut on = side.plain();
        let found = on.aggregate_by(&side.jobs, stages, ReadConcern::majority(), Some("_id_"));
        Ok(row::job_ids(&found.await?))
    }

    /// Returns the ids of the first unfinished jobs that match the filter. With transactions, reads
    /// all indexes in one snapshot. So a job that moves from one index to another is not missed.
    async fn unfinished_ids(
        &self,
        wanted: &Document,
        filter: &JobFilter,
        page: &PageRequest,
    ) -> Result<Vec<JobId>> {
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
        let stages = |mut here: Document| {
            here.extend(behind(page));
            vec![
                doc! { "$match": here },
                doc! { "$sort": { "_id": order(page) } },
                doc! { "$limit": limit },
                doc! { "$project": { "_id": 1 } },
            ]
        };
        let states = filter.wanted_states();
        let mut ids = row::job_ids(&self.by_state(wanted, &states, stages).await?);
        ids.sort_unstable();
        // A job that moved from one index to another in the meantime may be in both results.
        ids.dedup();
        if page.order == JobOrder::NewestFirst {
            ids.reverse();
        }
        ids.truncate(page.limit);
        Ok(ids)
    }

    /// Counts the jobs that match the filter, for each state. [count.filter]
    pub(crate) async fn count_matching(&self, filter: &JobFilter) -> Result<StateCounts> {
        let count = || self.count_once(filter);
        match by_route(filter) {
            true => self.with_routes(count).await,
            false => count().await,
        }
    }

    async fn count_once(&self, filter: &JobFilter) -> Result<StateCounts> {
        let side = self.main();
        let states = filter.wanted_states();
        let wanted = self.narrowed(filter);
        let index = match Among::of(filter) {
            Among::Batch => Some("batch"),
            Among::Tagged => Some("tag"),
            _ => None,
        };
        let counted = if let Some(index) = index {
            let stages = counting(wanted);
            let mut on = side.plain();
            let concern = ReadConcern::majority();
            counted(
                &on.aggregate_by(&side.jobs, stages, concern, Some(index))
                    .await?,
            )
        } else {
            counted(&self.by_state(&wanted, &states, counting).await?)
        }?;
        let mut counts = StateCounts::new();
        for one in counted {
            *counts
                .entry(JobState::from_code(one.state.into())?)
                .or_default() += one.jobs;
        }
        Ok(counts)
    }

    /// Counts all jobs, for each combination of state, route and queue.
    pub(crate) async fn count_routes(&self) -> Result<Vec<Counted>> {
        let rows = self.by_state(&doc! {}, &JobState::ALL, counting).await?;
        counted(&rows)
    }

    /// Runs a pipeline on each index in `STATE_INDEXES` that contains jobs of these states. Returns
    /// the results of all runs. `stages` builds the pipeline from a filter.
    async fn by_state(
        &self,
        wanted: &Document,
        states: &[JobState],
        stages: impl Fn(Document) -> Vec<Document>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let side = self.main();
        let mut tx = self.begin(side).await?;
        let looked = async {
            let mut all = Vec::new();
            for one in &STATE_INDEXES {
                let here = one.states.iter().filter(|state| states.contains(state));
                let here: Vec<i32> = here.map(|state| code(*state)).collect();
                if !here.is_empty() {
                    let mut wanted = wanted.clone();
                    wanted.insert("state", doc! { "$in": here });
                    let concern = ReadConcern::majority();
                    let stages = stages(wanted);
                    let tx: &mut Tx<'_> = &mut tx;
                    let rows = tx.aggregate_by(&side.jobs, stages, concern, Some(one.index));
                    all.extend(rows.await?);
                }
            }
            Ok(all)
        }
        .await;
        tx.finish(looked).await
    }

    /// Runs a read of jobs by the routes in the cache. Repeats it if a route was added at the same
    /// time: the read may have missed jobs that moved there from a shared route. [queue.separate]
    pub(crate) async fn with_routes<T, F>(&self, read: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (routes, side) = (self.routes(), self.main());
        routes.refresh(side).await?;
        loop {
            let last = routes.last();
            let found = read().await?;
            if !routes.has_shared() {
                return Ok(found);
            }
            routes.refresh(side).await?;
            if routes.last() == last {
                return Ok(found);
            }
        }
    }

    /// Converts the filter to a filter for the server.
    fn narrowed(&self, filter: &JobFilter) -> Document {
        let mut wanted = Document::new();
        if let Some(routes) = self.routes().filtered(filter) {
            wanted.insert("route", doc! { "$in": routes });
            if let Some(queue) = &filter.queue {
                // Jobs of routes that are not shared name no queue.
                wanted.insert("queue", doc! { "$in": [queue.as_str(), Bson::Null] });
            }
        }
        if let Some(tag) = &filter.tag {
            wanted.insert("tags", tag.as_str());
        }
        if let Some(batch) = filter.batch {
            wanted.insert("batch", row::id(batch));
        }
        if !filter.states.is_empty() {
            let codes: Vec<i32> = filter.states.iter().map(|state| code(*state)).collect();
            wanted.insert("state", doc! { "$in": codes });
        }
        wanted
    }
}

/// Returns whether the filter selects jobs by their routes.
fn by_route(filter: &JobFilter) -> bool {
    filter.queue.is_some() || filter.kind.is_some()
}

/// Returns the sort order of the job ids on a page: 1 or -1.
pub(crate) fn order(page: &PageRequest) -> i32 {
    match page.order {
        JobOrder::OldestFirst => 1,
        JobOrder::NewestFirst => -1,
    }
}

/// Returns a filter for the jobs that come after the previous page. [errors.poison]
pub(crate) fn behind(page: &PageRequest) -> Document {
    let mut range = any_job_id();
    if let Some(after) = page.after {
        let behind = match page.order {
            JobOrder::OldestFirst => "$gt",
            JobOrder::NewestFirst => "$lt",
        };
        range.insert(behind, row::id(after));
    }
    doc! { "_id": range }
}

fn counting(wanted: Document) -> Vec<Document> {
    let group: Bson = doc! { "state": "$state", "route": "$route", "queue": "$queue" }.into();
    vec![
        doc! { "$match": wanted },
        doc! { "$group": { "_id": group, "count": { "$sum": 1_i64 } } },
    ]
}

/// Reads the counts. Skips counts whose state or route cannot be read.
fn counted(rows: &[RawDocumentBuf]) -> Result<Vec<Counted>> {
    let mut counted = Vec::with_capacity(rows.len());
    for row in rows {
        let group = row.get_document("_id")?;
        if let (Ok(state), Ok(route)) = (row::count(group, "state"), row::count(group, "route")) {
            counted.push(Counted {
                state,
                route,
                queue: row::queue(group).map(str::to_owned),
                jobs: row::count(row, "count")?,
            });
        }
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_in_one_index() {
        for state in JobState::ALL {
            let indexes = STATE_INDEXES
                .iter()
                .filter(|one| one.states.contains(&state));
            assert_eq!(indexes.count(), 1, "{state:?}");
        }
    }
}
