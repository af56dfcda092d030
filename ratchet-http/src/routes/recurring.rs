//! The routes of recurring definitions: listing, pause, resume and trigger.

use axum::Json;
use axum::extract::State;
use ratchet_core::model::Enqueued;
use ratchet_core::store::Changed as StoreChanged;
use ratchet_core::{Name, RecurringClient};

use super::inputs::{self, AfterName, NameText};
use super::table::{Route, get, post};
use crate::api::Api;
use crate::auth::{Access, Action};
use crate::extract::{NoBody, Path, Query};
use crate::problem::{Code, Problem};
use crate::view::{Changed, RecurringJob, Recurrings, Triggered};

pub(super) fn routes() -> Vec<Route> {
    const CODES: [Code; 3] = [Code::NotFound, Code::Unsupported, Code::Unavailable];
    vec![
        get("/api/recurring", list)
            .reads()
            .says("Returns a page of the recurring definitions, sorted by name")
            .query::<AfterName>()
            .ok::<Recurrings>("The page")
            .refuses(&[Code::Unsupported, Code::Unavailable]),
        get("/api/recurring/{name}", show)
            .reads()
            .says("Returns one recurring definition")
            .part::<NameText>("name")
            .ok::<RecurringJob>("The definition")
            .refuses(&CODES),
        post(
            "/api/recurring/{name}/pause",
            Access::Write(Action::PauseRecurring),
            |api, name, body| set(api, name, body, true),
        )
        .says("Pauses a definition: no more slots are fired until it is resumed")
        .part::<NameText>("name")
        .ok::<Changed>("The definition is paused; `changed` is false if it was paused already")
        .refuses(&CODES),
        post(
            "/api/recurring/{name}/resume",
            Access::Write(Action::ResumeRecurring),
            |api, name, body| set(api, name, body, false),
        )
        .says("Resumes a definition: it continues with the next slot in the future")
        .part::<NameText>("name")
        .ok::<Changed>(
            "The definition is not paused; `changed` is false if it was not paused before",
        )
        .refuses(&CODES),
        post(
            "/api/recurring/{name}/trigger",
            Access::Write(Action::TriggerRecurring),
            trigger,
        )
        .says("Enqueues a job of a definition now, independently of its schedule")
        .part::<NameText>("name")
        .ok::<Triggered>("The id of the job, and whether the job is new")
        .refuses(&CODES),
    ]
}

/// Returns the client of recurring definitions, or an error if the store does not support them.
fn definitions(api: &Api) -> Result<RecurringClient, Problem> {
    match api.client().store().recurring() {
        Some(_) => Ok(api.client().recurring()),
        None => Err(Problem::unsupported("recurring definitions")),
    }
}

fn none_of_this_name() -> Problem {
    Problem::not_found("there is no recurring definition with this name")
}

async fn list(
    State(api): State<Api>,
    Query(query): Query<AfterName>,
) -> Result<Json<Recurrings>, Problem> {
    let after = inputs::optional_name("after", query.after.as_deref())?;
    let limit = inputs::page(&api, query.limit)?;
    let page = definitions(&api)?.list(after.as_ref(), limit).await?;
    Ok(Json(Recurrings {
        recurring: page.definitions.iter().map(RecurringJob::from).collect(),
        next: page.next.map(|next| next.to_string()),
    }))
}

async fn show(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<RecurringJob>, Problem> {
    let record = definitions(&api)?.get(&name).await?;
    let record = record.ok_or_else(none_of_this_name)?;
    Ok(Json(RecurringJob::from(&record)))
}

async fn set(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: NoBody,
    paused: bool,
) -> Result<Json<Changed>, Problem> {
    let definitions = definitions(&api)?;
    let changed = if paused {
        definitions.pause(&name).await?
    } else {
        definitions.resume(&name).await?
    };
    if changed == StoreChanged::Unchanged && definitions.get(&name).await?.is_none() {
        return Err(none_of_this_name());
    }
    Ok(Json(changed.into()))
}

async fn trigger(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: NoBody,
) -> Result<Json<Triggered>, Problem> {
    let name = Name::new("name", name)?;
    let enqueued = definitions(&api)?.trigger(name.as_str()).await?;
    let enqueued = enqueued.ok_or_else(none_of_this_name)?;
    Ok(Json(Triggered {
        job: enqueued.id().to_string(),
        created: matches!(enqueued, Enqueued::Created(_)),
    }))
}
