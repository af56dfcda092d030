//! The routes of locks and permits.

use axum::Json;
use axum::extract::State;

use super::table::{Route, get};
use crate::api::Api;
use crate::problem::{Code, Problem};
use crate::view::{Lock, Locks, Permit, Permits};

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/locks", locks)
            .reads()
            .says("Returns all locks, sorted by name, including those that are free at present")
            .ok::<Locks>("The locks")
            .refuses(&[Code::Unavailable]),
        get("/api/permits", permits)
            .reads()
            .says("Returns the resources that have permits, and how many permits are held")
            .ok::<Permits>("The permits")
            .refuses(&[Code::Unsupported, Code::Unavailable]),
    ]
}

async fn locks(State(api): State<Api>) -> Result<Json<Locks>, Problem> {
    let locks = api.client().locks().await?;
    let lock = |(name, info): &_| Lock::new(name, info);
    Ok(Json(Locks {
        locks: locks.iter().map(lock).collect(),
    }))
}

async fn permits(State(api): State<Api>) -> Result<Json<Permits>, Problem> {
    if api.client().store().permits().is_none() {
        return Err(Problem::unsupported("permits"));
    }
    let permits = api.client().permits().await?;
    Ok(Json(Permits {
        permits: permits.iter().map(Permit::from).collect(),
    }))
}
