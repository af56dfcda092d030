//! The routes that list the pauses, and that pause and resume queues and kinds.

use axum::Json;
use axum::extract::State;
use ratchet_core::Name;
use ratchet_core::model::{PauseRequest, PauseScope};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::NameText;
use super::table::{Route, get, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract::{JsonOrNothing, NoBody, Path};
use crate::problem::{Code, Problem};
use crate::view::{Changed, Pause, Pauses};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/pauses", list)
            .reads()
            .says("Returns the paused queues and kinds, with who paused them, when and why")
            .ok::<Pauses>("The pauses")
            .refuses(&[Code::Unavailable]),
        post(
            "/api/queues/{name}/pause",
            Access::Write(Action::PauseQueue),
            |api, name, body| pause(api, name, body, PauseScope::Queue),
        )
        .says("Pauses a queue: no more of its jobs are claimed; running jobs continue")
        .part::<NameText>("name")
        .optional_body::<PauseBody>()
        .ok::<Changed>("The queue is paused; `changed` is false if it was paused already")
        .refuses(&[Code::Unavailable]),
        post(
            "/api/queues/{name}/resume",
            Access::Write(Action::ResumeQueue),
            |api, name, body| resume(api, name, body, PauseScope::Queue),
        )
        .says("Resumes a queue: its jobs are claimed again")
        .part::<NameText>("name")
        .ok::<Changed>("The queue is not paused; `changed` is false if it was not paused before")
        .refuses(&[Code::Unavailable]),
        post(
            "/api/kinds/{name}/pause",
            Access::Write(Action::PauseKind),
            |api, name, body| pause(api, name, body, PauseScope::Kind),
        )
        .says("Pauses a kind: no more of its jobs are claimed; running jobs continue")
        .part::<NameText>("name")
        .optional_body::<PauseBody>()
        .ok::<Changed>("The kind is paused; `changed` is false if it was paused already")
        .refuses(&[Code::Unavailable]),
        post(
            "/api/kinds/{name}/resume",
            Access::Write(Action::ResumeKind),
            |api, name, body| resume(api, name, body, PauseScope::Kind),
        )
        .says("Resumes a kind: its jobs are claimed again")
        .part::<NameText>("name")
        .ok::<Changed>("The kind is not paused; `changed` is false if it was not paused before")
        .refuses(&[Code::Unavailable]),
    ]
}

/// Who pauses, and why. A request without a body names neither.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    /// Who pauses, such as a user name: up to 128 bytes.
    #[schemars(with = "Option<NameText>")]
    by: Option<String>,
    /// Why: up to 1,024 bytes in one line.
    reason: Option<String>,
}

async fn list(State(api): State<Api>) -> Result<Json<Pauses>, Problem> {
    let pauses = api.client().pauses().await?;
    Ok(Json(Pauses {
        pauses: pauses.iter().map(Pause::from).collect(),
    }))
}

async fn pause(
    State(api): State<Api>,
    Path(name): Path<String>,
    JsonOrNothing(body): JsonOrNothing<PauseBody>,
    scope: fn(Name) -> PauseScope,
) -> Result<Json<Changed>, Problem> {
    let mut request = PauseRequest::new(scope(Name::new("name", name)?));
    request.by = body.by;
    request.reason = body.reason;
    let changed = api.client().begin_pause(&request).await?;
    shown(&api, &request.scope, true);
    Ok(Json(changed.into()))
}

async fn resume(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: NoBody,
    scope: fn(Name) -> PauseScope,
) -> Result<Json<Changed>, Problem> {
    let scope = scope(Name::new("name", name)?);
    let changed = api.client().end_pause(&scope).await?;
    shown(&api, &scope, false);
    Ok(Json(changed.into()))
}

/// Makes lists of queues show the change at once.
fn shown(api: &Api, scope: &PauseScope, paused: bool) {
    if let PauseScope::Queue(queue) = scope {
        api.sampler().queue_paused(queue, paused);
    }
}
