//! The route that returns the fair keys with the most jobs.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs;
use super::table::{Route, get};
use crate::api::Api;
use crate::extract::Query;
use crate::problem::{Code, Problem};
use crate::view::FairKeys;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/fair-keys", list)
            .reads()
            .says(
                "Counts the jobs of fair keys, and returns the keys with the most; reads at most \
                 10,000 running jobs and the 10,000 newest jobs",
            )
            .query::<Most>()
            .ok::<FairKeys>("The keys")
            .refuses(&[Code::Unavailable]),
    ]
}

/// The parameters of the busiest keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Most {
    /// The maximum number of keys; 50 by default.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

async fn list(
    State(api): State<Api>,
    Query(query): Query<Most>,
) -> Result<Json<FairKeys>, Problem> {
    let limit = inputs::page(&api, query.limit)?;
    let usage = api.client().fair_keys(limit).await?;
    Ok(Json(FairKeys::from(&usage)))
}
