//! The route of the cluster's summary, from the results of background reads.

use axum::Json;
use axum::extract::State;

use super::table::{Route, get};
use crate::api::Api;
use crate::problem::{Code, Problem};
use crate::view::Overview;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/overview", overview)
            .says("Returns a summary of the cluster and its history of the last two hours.")
            .ok::<Overview>("The summary, read a few seconds ago; jobs are counted less often.")
            .refuses(&[Code::Unavailable]),
    ]
}

async fn overview(State(api): State<Api>) -> Result<Json<Overview>, Problem> {
    api.sampler().overview().await.map(Json)
}
