//! The routes of jobs: listings, single jobs, and actions on one job.

use axum::Json;
use axum::extract::State;
use http::request::Parts;
use ratchet_core::model::{ActionOutcome, Detail, JobOrder, JobSelector, PageRequest};
use ratchet_core::{JobId, JobState};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{self, FilterParts, Id, NameText};
use super::table::{Route, get, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract::{NoBody, Path, Query};
use crate::problem::{Code, Problem};
use crate::view::{
    Acted, ActedOutcome, Attempts, Hidden, JobAction, JobDetail, Jobs, State as JobStateView,
};

pub(super) fn routes() -> Vec<Route> {
    let mut routes = vec![
        get("/api/jobs", list)
            .reads()
            .says("Returns a page of the jobs that match every given parameter, without payloads")
            .query::<ListQuery>()
            .ok::<Jobs>("The page")
            .refuses(&[Code::Unavailable]),
        get("/api/jobs/{id}", show)
            .reads()
            .says("Returns one job with all of its details")
            .part::<Id>("id")
            .ok::<JobDetail>("The job")
            .refuses(&[Code::NotFound, Code::Unavailable]),
        get("/api/jobs/{id}/history", history)
            .reads()
            .says("Returns a page of the last ended claims of a job, oldest first")
            .part::<Id>("id")
            .ok::<Attempts>("The history")
            .refuses(&[Code::NotFound, Code::Unavailable]),
    ];
    routes.extend(JobAction::ALL.map(act_route));
    routes
}

fn act_route(action: JobAction) -> Route {
    let (path, says) = match action {
        JobAction::Retry => (
            "/api/jobs/{id}/retry",
            "Makes a dead letter pending again, and resets its count of attempts",
        ),
        JobAction::Cancel => (
            "/api/jobs/{id}/cancel",
            "Cancels a job: at once if it waits, or by a request to its handler if it is running",
        ),
        JobAction::Pause => ("/api/jobs/{id}/pause", "Pauses a pending job"),
        JobAction::Resume => ("/api/jobs/{id}/resume", "Makes a paused job pending again"),
        JobAction::Delete => (
            "/api/jobs/{id}/delete",
            "Deletes an ended job with its history",
        ),
    };
    let handler = move |State(api): State<Api>, Path(id): Path<String>, _: NoBody| async move {
        act(&api, inputs::id("id", &id)?, action).await.map(Json)
    };
    post(path, Access::Write(access(action)), handler)
        .says(says)
        .part::<Id>("id")
        .ok::<Acted>("The outcome of the action")
        .refuses(&[Code::NotFound, Code::Conflict, Code::Unavailable])
}

/// Returns the [`Action`] for which the caller needs access to perform this job action.
pub(super) const fn access(action: JobAction) -> Action {
    match action {
        JobAction::Retry => Action::RetryJob,
        JobAction::Cancel => Action::CancelJob,
        JobAction::Pause => Action::PauseJob,
        JobAction::Resume => Action::ResumeJob,
        JobAction::Delete => Action::DeleteJob,
    }
}

/// The parameters of a page of jobs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
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
    /// The order of the jobs; newest first by default.
    #[serde(default)]
    order: Order,
    /// Only jobs that come after the job with this id: the value of `next` on the previous page.
    #[schemars(with = "Option<Id>")]
    after: Option<String>,
    /// The maximum number of jobs on the page; 50 by default.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

/// The order of a list of jobs.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// The jobs that were enqueued last come first.
    #[default]
    Newest,
    /// The jobs that were enqueued first come first.
    Oldest,
}

async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Jobs>, Problem> {
    let states = states(&query.state)?;
    let parts = FilterParts {
        states: &states,
        queue: query.queue.as_deref(),
        kind: query.kind.as_deref(),
        tag: query.tag.as_deref(),
        batch: query.batch.as_deref(),
    };
    let order = match query.order {
        Order::Newest => JobOrder::NewestFirst,
        Order::Oldest => JobOrder::OldestFirst,
    };
    let page = PageRequest::first(inputs::page(&api, query.limit)?)
        .after(inputs::optional_id("after", query.after.as_deref())?)
        .order(order)
        .detail(Detail::Outline);
    let page = api.client().list(&parts.filter()?, &page).await?;
    Ok(Json(Jobs::from(&page)))
}

pub(super) fn states(given: &[String]) -> Result<Vec<JobStateView>, Problem> {
    let words = given.iter().flat_map(|text| text.split(','));
    let state = |word: &str| {
        let known = JobState::ALL.into_iter().find(|it| it.to_string() == word);
        let all = JobState::ALL.map(|state| state.to_string()).join(", ");
        let unknown = || Problem::invalid("state", format!("state must be one of {all}"));
        known.map(Into::into).ok_or_else(unknown)
    };
    words.map(state).collect()
}

async fn show(
    State(api): State<Api>,
    Path(id): Path<String>,
    request: Parts,
) -> Result<Json<JobDetail>, Problem> {
    let id: JobId = inputs::id("id", &id)?;
    let job = api.client().job(id).await?.ok_or_else(no_such_job)?;
    let hidden = if api.shows_payloads(&request).await {
        Hidden::No
    } else {
        Hidden::Yes
    };
    Ok(Json(JobDetail::new(&job, hidden)))
}

async fn history(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Attempts>, Problem> {
    let id: JobId = inputs::id("id", &id)?;
    let attempts = api.client().history(id).await?;
    if attempts.is_empty() && api.client().job(id).await?.is_none() {
        return Err(no_such_job());
    }
    Ok(Json(Attempts::last(&attempts, api.limits().page)))
}

pub(super) fn no_such_job() -> Problem {
    Problem::not_found("no job has this id")
}

async fn act(api: &Api, id: JobId, action: JobAction) -> Result<Acted, Problem> {
    let one = JobSelector::Ids(vec![id]);
    let acted = api.client().act(&one, action.into()).await?;
    let outcome = (acted.first()).map_or(ActionOutcome::NotFound, |acted| acted.outcome);
    acted_view(outcome, action)
}

/// Returns the response to an action on one job.
fn acted_view(outcome: ActionOutcome, action: JobAction) -> Result<Acted, Problem> {
    let acted = |outcome, state: Option<JobState>| Acted {
        outcome,
        state: state.map(Into::into),
    };
    match outcome {
        ActionOutcome::Became(state) => Ok(acted(ActedOutcome::Became, Some(state))),
        ActionOutcome::CancelRequested => Ok(acted(ActedOutcome::CancelRequested, None)),
        ActionOutcome::Changed => Ok(acted(ActedOutcome::Changed, None)),
        ActionOutcome::Deleted => Ok(acted(ActedOutcome::Deleted, None)),
        ActionOutcome::Refused(state) => {
            let word = action.as_str();
            Err(Problem::conflict(
                state,
                format!("the action {word} does not apply to a {state} job"),
            ))
        }
        // Only a retry reserves the unique key again, and only dead letters can be retried. So the
        // state of this job is `Failed`.
        ActionOutcome::KeyTaken(holder) => Err(Problem::conflict(
            JobState::Failed,
            format!("the unfinished job {holder} has the unique key of this job"),
        )),
        ActionOutcome::NotFound => Err(no_such_job()),
        _ => Err(Problem::new(
            Code::Internal,
            "the store returned an outcome that this version does not know",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_one_by_one_or_with_commas() {
        let given = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            states(&texts)
        };
        let all = given(&["failed,pending", "running"]).unwrap();
        let wanted = [JobState::Failed, JobState::Pending, JobState::Running];
        assert_eq!(all, wanted.map(Into::into));
        for bad in ["", "failed,", "Failed", "dead"] {
            assert_eq!(given(&[bad]).unwrap_err().field.as_deref(), Some("state"));
        }
    }

    #[test]
    fn refused_actions_tell_the_state() {
        let refused = acted_view(ActionOutcome::Refused(JobState::Running), JobAction::Delete);
        let problem = refused.unwrap_err();
        assert_eq!(
            (problem.code, problem.state),
            (Code::Conflict, Some(JobStateView::Running))
        );
        let taken = acted_view(ActionOutcome::KeyTaken(JobId::new()), JobAction::Retry);
        assert_eq!(taken.unwrap_err().state, Some(JobStateView::Failed));
    }
}
