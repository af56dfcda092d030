//! The route that lists queues.

use axum::Json;
use axum::extract::State;

use super::inputs::{self, AfterNameInMemory};
use super::table::{Route, get};
use crate::api::Api;
use crate::extract::Query;
use crate::problem::Problem;
use crate::view::{Queue, Queues};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/queues", list)
            .says("Returns a page of the queues, with the last counts of their jobs")
            .query::<AfterNameInMemory>()
            .ok::<Queues>("The page, from memory"),
    ]
}

async fn list(
    State(api): State<Api>,
    Query(query): Query<AfterNameInMemory>,
) -> Result<Json<Queues>, Problem> {
    let after = inputs::optional_name("after", query.after.as_deref())?;
    let limit = inputs::page_from_memory(&api, query.limit)?;
    let mut page = api.sampler().queues();
    let is_after = |queue: &Queue| {
        after
            .as_ref()
            .is_none_or(|name| *queue.name > *name.as_str())
    };
    page.queues.retain(is_after);
    page.next = inputs::first_page(&mut page.queues, limit, |queue| queue.name.clone());
    Ok(Json(page))
}
