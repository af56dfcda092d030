//! The routes of queues: listing, pause and resume.

use axum::Json;
use axum::extract::State;
use ratchet_core::Name;

use super::inputs::{self, AfterNameInMemory, NameText};
use super::table::{Route, get, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract::{NoBody, Path, Query};
use crate::problem::{Code, Problem};
use crate::view::{Changed, Queue, Queues};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/queues", list)
            .says("Returns a page of the queues, with the last counts of their jobs")
            .query::<AfterNameInMemory>()
            .ok::<Queues>("The page, from memory"),
        post(
            "/api/queues/{name}/pause",
            Access::Write(Action::PauseQueue),
            |api, name, body| set(api, name, body, true),
        )
        .says("Pauses a queue: no more of its jobs are claimed; running jobs continue")
        .part::<NameText>("name")
        .ok::<Changed>("The queue is paused; `changed` is false if it was paused already")
        .refuses(&[Code::Unavailable]),
        post(
            "/api/queues/{name}/resume",
            Access::Write(Action::ResumeQueue),
            |api, name, body| set(api, name, body, false),
        )
        .says("Resumes a queue: its jobs are claimed again")
        .part::<NameText>("name")
        .ok::<Changed>("The queue is not paused; `changed` is false if it was not paused before")
        .refuses(&[Code::Unavailable]),
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

async fn set(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: NoBody,
    paused: bool,
) -> Result<Json<Changed>, Problem> {
    let queue = Name::new("name", name)?;
    let client = api.client();
    let changed = if paused {
        client.pause_queue(queue.as_str()).await?
    } else {
        client.resume_queue(queue.as_str()).await?
    };
    api.sampler().queue_paused(&queue, paused);
    Ok(Json(changed.into()))
}
