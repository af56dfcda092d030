//! The cluster at a glance, from what was read in the background.

use axum::Json;
use axum::extract::State;

use super::table::{Route, get};
use crate::api::Api;
use crate::problem::{Code, Problem};
use crate::view::Overview;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/overview", overview)
            .says("What runs, how much, how late, and the same over the last two hours.")
            .ok::<Overview>("As it was read a few seconds ago; jobs are counted less often.")
            .refuses(&[Code::Unavailable]),
    ]
}

async fn overview(State(api): State<Api>) -> Result<Json<Overview>, Problem> {
    api.sampler().overview().await.map(Json)
}
