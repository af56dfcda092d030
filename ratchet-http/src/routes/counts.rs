//! The routes that count matching jobs, up to a limit: by state for the filters of a listing, and
//! in total before a bulk action.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use ratchet_core::model::{Detail, JobFilter, PageRequest};
use ratchet_core::state::Response;
use ratchet_core::time;
use ratchet_core::{Client, JobState};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::inputs::{FilterParts, Id, NameText};
use super::jobs;
use super::table::{Route, get};
use crate::api::Api;
use crate::extract::Query;
use crate::problem::{Code, Problem};
use crate::view::{JobAction, Matching, MatchingByState, State as JobStateView};

/// The maximum result of a count before a bulk action. Counting stops at this number.
const MOST: usize = 10_000;
/// The maximum result of a count in one state. Counting in that state stops at this number.
const MOST_IN_STATE: usize = 1_000;
/// The number of jobs that one call of the store reads.
const PAGE: usize = 1_000;
/// The time after which counting stops. If a call of the store is then in progress, it is dropped.
const TIME: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/jobs/count", count)
            .reads()
            .says("Counts the jobs that match every given parameter, up to 10,000")
            .query::<CountQuery>()
            .ok::<Matching>("The count, and whether it is exact")
            .refuses(&[Code::Unavailable]),
        get("/api/jobs/counts", by_state)
            .reads()
            .says(
                "Counts the jobs that match every given parameter, for each state, up to 1,000 \
                 per state",
            )
            .query::<ByStateQuery>()
            .ok::<MatchingByState>(
                "The counts, from the last background count if that count covers the filter",
            )
            .refuses(&[Code::Unavailable]),
    ]
}

/// The parameters of a count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountQuery {
    /// Only jobs in one of these states. The parameter may be repeated, or have several states
    /// separated by commas.
    #[serde(default)]
    #[schemars(with = "Vec<JobStateView>")]
    state: Vec<String>,
    /// Only jobs in this queue.
    #[schemars(with = "Option<NameText>")]
    queue: Option<String>,
    /// Only jobs of this kind.
    #[schemars(with = "Option<NameText>")]
    kind: Option<String>,
    /// Only jobs with this tag.
    #[schemars(with = "Option<NameText>")]
    tag: Option<String>,
    /// Only jobs in this batch.
    #[schemars(with = "Option<Id>")]
    batch: Option<String>,
    /// Only jobs whose state allows this action.
    action: Option<JobAction>,
}

/// The parameters of a count by state.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ByStateQuery {
    /// Only jobs in this queue.
    #[schemars(with = "Option<NameText>")]
    queue: Option<String>,
    /// Only jobs of this kind.
    #[schemars(with = "Option<NameText>")]
    kind: Option<String>,
    /// Only jobs with this tag.
    #[schemars(with = "Option<NameText>")]
    tag: Option<String>,
    /// Only jobs in this batch.
    #[schemars(with = "Option<Id>")]
    batch: Option<String>,
}

async fn count(
    State(api): State<Api>,
    Query(query): Query<CountQuery>,
) -> Result<Json<Matching>, Problem> {
    let states = jobs::states(&query.state)?;
    let parts = FilterParts {
        states: &states,
        queue: query.queue.as_deref(),
        kind: query.kind.as_deref(),
        tag: query.tag.as_deref(),
        batch: query.batch.as_deref(),
    };
    let mut filter = parts.filter()?;
    if let Some(action) = query.action {
        filter.states = filter.wanted_states();
        let takes = |state: &JobState| state.respond(action.into()) != Response::Refuse;
        filter.states.retain(takes);
        // None of the requested states allows the action. A filter with an empty list would match
        // every state instead of none.
        if filter.states.is_empty() {
            return Ok(Json(Matching::exactly(0)));
        }
    }
    let until = deadline(&api);
    let matching = matching(api.client(), &filter, MOST, until).await?;
    Ok(Json(matching))
}

async fn by_state(
    State(api): State<Api>,
    Query(query): Query<ByStateQuery>,
) -> Result<Json<MatchingByState>, Problem> {
    let parts = FilterParts {
        states: &[],
        queue: query.queue.as_deref(),
        kind: query.kind.as_deref(),
        tag: query.tag.as_deref(),
        batch: query.batch.as_deref(),
    };
    let filter = parts.filter()?;
    let narrow = filter.kind.is_some() || filter.tag.is_some() || filter.batch.is_some();
    if !narrow && let Some((counts, at)) = api.sampler().counts(filter.queue.as_ref()) {
        return Ok(Json(MatchingByState::counted(&counts, at)));
    }
    let until = deadline(&api);
    let mut found = MatchingByState::default();
    for state in JobState::ALL {
        if time::monotonic() >= until {
            break;
        }
        let filter = filter.clone().state(state);
        let matching = matching(api.client(), &filter, MOST_IN_STATE, until).await?;
        found.counts.insert(state.into(), matching);
    }
    Ok(Json(found))
}

/// Returns the time at which a count stops, well before the timeout of the request.
fn deadline(api: &Api) -> Instant {
    time::monotonic() + TIME.min(api.limits().request_timeout / 3)
}

/// Counts matching jobs page by page. Stops when no job is left, when `most` jobs are found, or at
/// the time `until`.
async fn matching(
    client: &Client,
    filter: &JobFilter,
    most: usize,
    until: Instant,
) -> Result<Matching, Problem> {
    let (mut found, mut after) = (0, None);
    loop {
        let page = PageRequest::first(PAGE.min(most - found))
            .after(after)
            .detail(Detail::Outline);
        let Ok(page) = tokio::time::timeout_at(until, client.list(filter, &page)).await else {
            return Ok(Matching::at_least(found));
        };
        let page = page?;
        found += page.jobs.len();
        after = page.next;
        if after.is_none() {
            return Ok(Matching::exactly(found));
        }
        if found >= most || time::monotonic() >= until {
            return Ok(Matching::at_least(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratchet_core::memory::Fault;
    use ratchet_core::{MemoryStore, NewJob, Ratchet};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_count_ends_at_its_bound_or_when_its_time_is_over() {
        let client = Ratchet::client(Arc::new(MemoryStore::new()));
        let jobs: Vec<NewJob> = (0..2_500).map(|n| NewJob::new("k", &n)).collect();
        client.enqueue_all(&jobs).await.unwrap();
        let all = JobFilter::all();
        let later = time::monotonic() + TIME;
        for (most, until, wanted) in [
            (MOST, later, Matching::exactly(2_500)),
            (1_500, later, Matching::at_least(1_500)),
            (MOST, time::monotonic(), Matching::at_least(PAGE)),
        ] {
            let found = matching(&client, &all, most, until).await.unwrap();
            assert_eq!(found, wanted, "up to {most}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_does_not_wait_for_a_slow_call_of_the_store() {
        let store = MemoryStore::new().with_faults(|operation| match operation {
            "list" => Fault::Delay(TIME * 2 / 3),
            _ => Fault::None,
        });
        let client = Ratchet::client(Arc::new(store));
        let jobs: Vec<NewJob> = (0..2_500).map(|n| NewJob::new("k", &n)).collect();
        client.enqueue_all(&jobs).await.unwrap();
        let began = time::monotonic();
        let found = matching(&client, &JobFilter::all(), MOST, began + TIME).await;
        assert_eq!(found.unwrap(), Matching::at_least(PAGE));
        assert_eq!(began.elapsed(), TIME);
    }
}
