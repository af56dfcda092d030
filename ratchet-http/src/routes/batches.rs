//! The routes of batches: listings, single batches, and cancellation.

use axum::Json;
use axum::extract::State;
use ratchet_core::limits::MAX_BATCH;
use ratchet_core::model::{BatchClosed, JobFilter};
use ratchet_core::{BatchId, JobAction};

use super::bulk;
use super::inputs::{self, Before, Id};
use super::table::{Route, get, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract::{NoBody, Path, Query};
use crate::problem::{Code, Problem};
use crate::view::{Batch, Batches, BulkDone};

pub(super) fn routes() -> Vec<Route> {
    const CODES: [Code; 3] = [Code::NotFound, Code::Unsupported, Code::Unavailable];
    vec![
        get("/api/batches", list)
            .reads()
            .says("Returns a page of the batches, newest first")
            .query::<Before>()
            .ok::<Batches>("The page")
            .refuses(&[Code::Unsupported, Code::Unavailable]),
        get("/api/batches/{id}", show)
            .reads()
            .says("Returns one batch")
            .part::<Id>("id")
            .ok::<Batch>("The batch")
            .refuses(&CODES),
        post(
            "/api/batches/{id}/cancel",
            Access::Write(Action::CancelBatch),
            cancel,
        )
        .says(
            "Closes a batch and cancels its unfinished jobs, as many as fit into the time limit \
             of a request",
        )
        .part::<Id>("id")
        .ok::<BulkDone>("The result. If `complete` is false, send the same request again")
        .refuses(&CODES),
    ]
}

/// Fails if the store does not support batches.
fn has_batches(api: &Api) -> Result<(), Problem> {
    match api.client().store().workflows() {
        Some(_) => Ok(()),
        None => Err(Problem::unsupported("batches")),
    }
}

fn no_such_batch() -> Problem {
    Problem::not_found("no batch has this id")
}

async fn list(
    State(api): State<Api>,
    Query(query): Query<Before>,
) -> Result<Json<Batches>, Problem> {
    has_batches(&api)?;
    let before = inputs::optional_id("before", query.before.as_deref())?;
    let limit = inputs::page(&api, query.limit)?;
    // Read one more item, which shows whether there is another page.
    let asked = (limit + 1).min(MAX_BATCH);
    let mut batches = api.client().recent_batches(asked, before).await?;
    let more = batches.len() == asked;
    batches.truncate(limit);
    let last = batches.last().filter(|_| more);
    Ok(Json(Batches {
        next: last.map(|batch| batch.id.to_string()),
        batches: batches.iter().map(Batch::from).collect(),
    }))
}

async fn show(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Batch>, Problem> {
    has_batches(&api)?;
    let id: BatchId = inputs::id("id", &id)?;
    let batch = api.client().batch(id).await?.ok_or_else(no_such_batch)?;
    Ok(Json(Batch::from(&batch)))
}

async fn cancel(
    State(api): State<Api>,
    Path(id): Path<String>,
    _: NoBody,
) -> Result<Json<BulkDone>, Problem> {
    has_batches(&api)?;
    let id: BatchId = inputs::id("id", &id)?;
    if api.client().close_batch(id).await? == BatchClosed::NotFound {
        return Err(no_such_batch());
    }
    let children = JobFilter::all().batch(id);
    let cancel = api.client().bulk(children, JobAction::Cancel, u64::MAX);
    bulk::run(&api, cancel).await.map(Json)
}
