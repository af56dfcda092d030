//! One action on many jobs.

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

/// How many jobs one request acts on unless it says otherwise.
const LIMIT: u64 = 10_000;
/// The most jobs one request may act on.
const MOST: u64 = 1_000_000;
/// How long one request goes on at most; the pass that goes on then is made.
const TIME: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/api/jobs/bulk", Access::Write(Action::BulkJobs), bulk)
            .says(
                "One action on the jobs that match a filter, or on those that are named, in passes \
                 of a bounded size, for a bounded time; it is not one transaction",
            )
            .body::<BulkRequest>()
            .ok::<BulkDone>("What was done, and whether something is left")
            .refuses(&[Code::Unavailable]),
    ]
}

/// The action and the jobs: `ids`, or `filter`, or `all`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BulkRequest {
    /// The action.
    action: JobAction,
    /// These jobs, at most as many as a page may have.
    #[schemars(with = "Option<Vec<Id>>")]
    ids: Option<Vec<String>>,
    /// The jobs that match every part, from the oldest on, as far as they can take the action.
    filter: Option<Filter>,
    /// With a filter that matches everything, or none: that this is meant.
    #[serde(default)]
    all: bool,
    /// The most jobs to act on, with a filter; 10,000 by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    limit: Option<u64>,
    /// Only those after this job, with a filter: `next` of the answer before.
    #[schemars(with = "Option<Id>")]
    after: Option<String>,
}

/// Which jobs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Filter {
    /// In one of these states; empty: any.
    #[serde(default)]
    states: Vec<JobStateView>,
    /// In this queue.
    #[schemars(with = "Option<NameText>")]
    queue: Option<String>,
    /// Of this kind.
    #[schemars(with = "Option<NameText>")]
    kind: Option<String>,
    /// With this tag.
    #[schemars(with = "Option<NameText>")]
    tag: Option<String>,
    /// In this batch.
    #[schemars(with = "Option<Id>")]
    batch: Option<String>,
}

/// A valid request.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    Ids(Vec<JobId>),
    Filter {
        filter: JobFilter,
        limit: u64,
        after: Option<JobId>,
    },
}

/// As the log of writes shows it.
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
            return Err(Problem::invalid(field, "means nothing beside ids"));
        }
        if !(1..=most_ids).contains(&ids.len()) {
            let named = ids.len();
            let problem = format!("has {named} ids; 1 to {most_ids} are taken at once");
            return Err(Problem::invalid("ids", problem));
        }
        let ids: Result<Vec<JobId>, Problem> =
            ids.iter().map(|text| inputs::id("ids", text)).collect();
        return ids.map(Meant::Ids);
    }
    let limit = request.limit.unwrap_or(LIMIT);
    if !(1..=MOST).contains(&limit) {
        let problem = format!("is {limit}; one request acts on 1 to {MOST} jobs");
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
        let problem = "matches every job; with \"all\": true that is meant";
        return Err(Problem::invalid("filter", problem));
    }
    Ok(Meant::Filter {
        filter,
        limit,
        after,
    })
}

/// Acts on jobs that are named, each by itself, in one pass.
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

/// Makes passes for as long as one request may.
pub(super) async fn run(api: &Api, mut bulk: Bulk) -> Result<BulkDone, Problem> {
    // What goes on when the time is over must be able to end before the request times out.
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
                let detail = format!("{}; {before} jobs were acted on before", problem.detail);
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
