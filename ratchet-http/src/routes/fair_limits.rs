//! The routes that list, set and remove limits of fair keys.

use axum::Json;
use axum::extract::State;
use ratchet_core::model::FairScope;
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::NameText;
use super::table::{Route, get, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract;
use crate::problem::{Code, Problem};
use crate::view::{Changed, FairLimit, FairLimits};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/fair-limits", list)
            .reads()
            .says("Returns the limits of fair keys: how many jobs of a key may run at once")
            .ok::<FairLimits>("The limits")
            .refuses(&[Code::Unsupported, Code::Unavailable]),
        post(
            "/api/fair-limits/set",
            Access::Write(Action::SetFairLimit),
            set,
        )
        .says("Sets or removes a limit of fair keys; it applies to the next claim")
        .body::<LimitBody>()
        .ok::<Changed>("The limit is set; `changed` is false if it was the same before")
        .refuses(&[Code::Unsupported, Code::Unavailable]),
    ]
}

/// A limit of all fair keys of a queue or pattern, or of one key of a queue.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitBody {
    /// The name of a queue, or a pattern such as `mail*`.
    #[schemars(with = "NameText")]
    queue: String,
    /// The fair key. Without a key, the limit applies to each key.
    #[schemars(with = "Option<NameText>")]
    key: Option<String>,
    /// The maximum number of running jobs of the key; 0 pauses it. Null removes the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(required)]
    max: Option<u32>,
}

async fn list(State(api): State<Api>) -> Result<Json<FairLimits>, Problem> {
    supported(&api)?;
    let limits = api.client().fair_limits().await?;
    Ok(Json(FairLimits {
        limits: limits.iter().map(FairLimit::from).collect(),
    }))
}

async fn set(
    State(api): State<Api>,
    extract::Json(body): extract::Json<LimitBody>,
) -> Result<Json<Changed>, Problem> {
    supported(&api)?;
    let scope = match body.key {
        None => FairScope::queues(body.queue)?,
        Some(key) => FairScope::key(body.queue, key)?,
    };
    let changed = match body.max {
        Some(max) => api.client().set_fair_limit(&scope, max).await?,
        None => api.client().remove_fair_limit(&scope).await?,
    };
    Ok(Json(changed.into()))
}

fn supported(api: &Api) -> Result<(), Problem> {
    match api.client().store().fair() {
        Some(_) => Ok(()),
        None => Err(Problem::unsupported("limits of fair keys")),
    }
}
