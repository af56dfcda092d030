//! The route for one action on many jobs.

use std::fmt;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use http::request::Parts;
use ratchet_core::model::{ActionOutcome, JobFilter, JobSelector};
use ratchet_core::{Bulk, JobId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{self, FilterParts, Id, NameText};
use super::jobs;
use super::table::{Route, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract;
use crate::guard::Detail;
use crate::problem::{Code, Problem};
use crate::view::{BulkDone, JobAction, State as JobStateView};

/// The default maximum number of jobs that one request acts on.
const LIMIT: u64 = 10_000;
/// The highest number that a request may set as the maximum number of jobs it acts on.
const MOST: u64 = 1_000_000;
/// The time after which a request begins no further pass. A pass acts on one part of the jobs, in
/// one transaction. The pass in progress is still finished.
const TIME: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/api/jobs/bulk", Access::Write(Action::BulkJobs), bulk)
            .says(
                "Applies one action to the jobs that match a filter, or to the named jobs, in passes \
                 of a bounded size and for a bounded time; this is not one transaction",
            )
            .body::<BulkRequest>()
            .ok::<BulkDone>("The result, and whether jobs are left that match the filter")
            .refuses(&[Code::Unavailable]),
    ]
}

/// An action, and the jobs to act on: `ids`, `filter` or `all`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BulkRequest {
    /// The action.
    action: JobAction,
    /// The ids of the jobs, at most as many as a page may have.
    #[schemars(with = "Option<Vec<Id>>")]
    ids: Option<Vec<String>>,
    /// A filter: the action applies to the jobs that match all fields of the filter and whose state
    /// allows the action. The action begins with the oldest job.
    filter: Option<Filter>,
    /// Confirms that the action applies to every job. Required if the request has no `ids`, and the
    /// filter is missing or matches every job.
    #[serde(default)]
    all: bool,
    /// The maximum number of jobs to act on, for a request without `ids`; 10,000 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    limit: Option<u64>,
    /// For a request without `ids`, the job after which to continue: the value of `next` in the
    /// last response.
    #[schemars(with = "Option<Id>")]
    after: Option<String>,
}

/// A filter of jobs. A job must match all fields that are set.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Filter {
    /// Only jobs in one of these states. An empty list matches every state.
    #[serde(default)]
    states: Vec<JobStateView>,
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

/// The validated selection of jobs of a request.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    Ids(Vec<JobId>),
    Filter {
        filter: JobFilter,
        limit: u64,
        after: Option<JobId>,
    },
}

/// Formats the selection for the log of writes.
impl fmt::Display for Meant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ids(ids) => write!(f, "{} ids", ids.len()),
            Self::Filter { filter, limit, .. } => write!(f, "limit={limit} {filter:?}"),
        }
    }
}

async fn bulk(
    State(api): State<Api>,
    head: Parts,
    extract::Json(request): extract::Json<BulkRequest>,
) -> Result<(Extension<Detail>, Json<BulkDone>), Problem> {
    let action = request.action;
    let meant = meant(&request, api.limits().page)?;
    let access = Access::Write(jobs::access(action));
    api.authorize(&head, access).await?;
    let which = meant.to_string();
    let done = match meant {
        Meant::Ids(ids) => named(&api, ids, action).await?,
        Meant::Filter {
            filter,
            limit,
            after,
        } => {
            let bulk = api.client().bulk(filter, action.into(), limit);
            run(&api, bulk.after(after)).await?
        }
    };
    let BulkDone {
        changed,
        cancel_requested,
        refused,
        key_taken,
        complete,
        ..
    } = &done;
    let detail = format!(
        "{action:?} {which}: changed={changed} cancel_requested={cancel_requested} \
         refused={refused} key_taken={key_taken} complete={complete}"
    );
    Ok((Extension(Detail(detail)), Json(done)))
}

fn meant(request: &BulkRequest, most_ids: usize) -> Result<Meant, Problem> {
    if let Some(ids) = &request.ids {
        let beside = [
            ("filter", request.filter.is_some()),
            ("all", request.all),
            ("limit", request.limit.is_some()),
            ("after", request.after.is_some()),
        ];
        if let Some((field, _)) = beside.into_iter().find(|(_, given)| *given) {
            return Err(Problem::invalid(
                field,
                "this field cannot be combined with ids",
            ));
        }
        if !(1..=most_ids).contains(&ids.len()) {
            let named = ids.len();
            let problem = format!("ids has {named} entries; it must have 1 to {most_ids}");
            return Err(Problem::invalid("ids", problem));
        }
        let ids: Result<Vec<JobId>, Problem> =
            ids.iter().map(|text| inputs::id("ids", text)).collect();
        return ids.map(Meant::Ids);
    }
    let limit = request.limit.unwrap_or(LIMIT);
    if !(1..=MOST).contains(&limit) {
        let problem = format!("limit is {limit}; it must be 1 to {MOST}");
        return Err(Problem::invalid("limit", problem));
    }
    let after = inputs::optional_id("after", request.after.as_deref())?;
    let none = Filter::default();
    let parts = request.filter.as_ref().unwrap_or(&none);
    let parts = FilterParts {
        states: &parts.states,
        queue: parts.queue.as_deref(),
        kind: parts.kind.as_deref(),
        tag: parts.tag.as_deref(),
        batch: parts.batch.as_deref(),
    };
    let filter = parts.filter().map_err(|mut problem| {
        problem.field = problem.field.map(|field| format!("filter.{field}"));
        problem
    })?;
    if filter == JobFilter::all() && !request.all {
        let problem = "the filter matches every job; add \"all\": true if that is intended";
        return Err(Problem::invalid("filter", problem));
    }
    Ok(Meant::Filter {
        filter,
        limit,
        after,
    })
}

/// Applies the action to the jobs with these ids, in one call of the store.
async fn named(api: &Api, ids: Vec<JobId>, action: JobAction) -> Result<BulkDone, Problem> {
    let acted = (api.client())
        .act(&JobSelector::Ids(ids), action.into())
        .await?;
    let mut done = BulkDone {
        complete: true,
        ..BulkDone::default()
    };
    for one in acted {
        let count = match one.outcome {
            ActionOutcome::CancelRequested => &mut done.cancel_requested,
            ActionOutcome::KeyTaken(_) => &mut done.key_taken,
            ActionOutcome::Refused(_) | ActionOutcome::NotFound => &mut done.refused,
            _ => &mut done.changed,
        };
        *count += 1;
    }
    Ok(done)
}

/// Runs passes of a bulk action until the action is complete or the time limit of the request is
/// reached.
pub(super) async fn run(api: &Api, mut bulk: Bulk) -> Result<BulkDone, Problem> {
    // The last pass may still run when `time` is over, and must end before the request times out.
    let time = TIME.min(api.limits().request_timeout / 3);
    match bulk.run_for(time).await {
        Ok(counts) => Ok(BulkDone {
            changed: counts.changed,
            cancel_requested: counts.cancel_requested,
            key_taken: counts.key_taken,
            refused: 0,
            complete: bulk.is_complete(),
            next: bulk
                .reached()
                .filter(|_| !bulk.is_complete())
                .map(|job| job.to_string()),
        }),
        Err(error) => {
            let before = bulk.counts().total();
            let mut problem = Problem::from(error);
            if before > 0 {
                let detail = format!(
                    "{}; the action was applied to {before} jobs before that",
                    problem.detail
                );
                problem.detail = detail.into();
            }
            Err(problem)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: serde_json::Value) -> Result<Meant, Option<String>> {
        let request: BulkRequest = serde_json::from_value(json).unwrap();
        meant(&request, 2).map_err(|problem| problem.field)
    }

    #[test]
    fn a_request_says_which_jobs_it_means() {
        let filter = |filter| Meant::Filter {
            filter,
            limit: LIMIT,
            after: None,
        };
        let refused = |field: &str| Err(Some(field.to_owned()));
        assert_eq!(
            read(json!({"action": "cancel", "filter": {"queue": "q"}})),
            Ok(filter(
                JobFilter::all().queue(ratchet_core::Name::new("queue", "q").unwrap())
            ))
        );
        assert_eq!(
            read(json!({"action": "cancel", "all": true})),
            Ok(filter(JobFilter::all()))
        );
        for everything in [
            json!({"action": "cancel"}),
            json!({"action": "cancel", "filter": {}}),
            json!({"action": "cancel", "filter": {"states": []}}),
        ] {
            assert_eq!(read(everything), refused("filter"));
        }
        let id = JobId::new();
        assert_eq!(
            read(json!({"action": "delete", "ids": [id.to_string()]})),
            Ok(Meant::Ids(vec![id]))
        );
        assert_eq!(read(json!({"action": "delete", "ids": []})), refused("ids"));
        let three = vec![id.to_string(); 3];
        assert_eq!(
            read(json!({"action": "delete", "ids": three})),
            refused("ids")
        );
        assert_eq!(
            read(json!({"action": "delete", "ids": [id.to_string()], "all": true})),
            refused("all")
        );
        for limit in [0, MOST + 1] {
            let asked = json!({"action": "pause", "all": true, "limit": limit});
            assert_eq!(read(asked), refused("limit"));
        }
        let bad = json!({"action": "pause", "filter": {"tag": " "}});
        assert_eq!(read(bad), refused("filter.tag"));
    }
}
