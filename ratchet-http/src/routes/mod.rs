//! The handlers, by topic, and the table that maps paths to them.

mod batches;
mod bulk;
mod cluster;
mod counts;
mod events;
mod fair_keys;
mod fair_limits;
mod graph;
mod inputs;
mod jobs;
mod locks;
mod metrics;
mod nodes;
mod openapi;
mod overview;
mod pauses;
mod probes;
mod queues;
mod recurring;
mod table;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use table::Route;

use crate::api::Api;
use crate::guard::Hosts;
use crate::{extract, guard};

/// Returns all routes of the API.
fn all() -> Vec<Route> {
    let topics = [
        probes::routes(),
        cluster::routes(),
        overview::routes(),
        events::routes(),
        metrics::routes(),
        jobs::routes(),
        counts::routes(),
        graph::routes(),
        bulk::routes(),
        queues::routes(),
        pauses::routes(),
        fair_keys::routes(),
        fair_limits::routes(),
        recurring::routes(),
        batches::routes(),
        locks::routes(),
        nodes::routes(),
        openapi::routes(),
    ];
    topics.into_iter().flatten().collect()
}

/// Returns the router of all routes. It accepts only requests for one of `hosts`.
///
/// The probes accept any host, because load balancers send an IP address as the `Host` header, or
/// send no `Host` header.
pub(crate) fn router(api: &Api, hosts: Hosts) -> Router {
    let (mut open, mut router) = (Router::new(), Router::new());
    for route in all() {
        let mut handler = route.handler;
        let Some(access) = route.access else {
            open = open.route(route.path, handler);
            continue;
        };
        if route.reads {
            handler = handler.route_layer(from_fn_with_state(api.clone(), guard::reads));
        }
        // Routes without query parameters refuse a query. Only the probes, which are added above,
        // accept one, because some monitors add a query to bypass caches.
        if route.query.is_none() {
            handler = handler.route_layer(from_fn(extract::no_query));
        }
        let guard = from_fn_with_state((api.clone(), access), guard::access);
        handler = handler.route_layer(guard);
        router = router.route(route.path, handler);
    }
    #[cfg(feature = "dashboard")]
    let router = crate::dashboard::add(router);
    let router = router
        .fallback(extract::not_found)
        .method_not_allowed_fallback(extract::method_not_allowed)
        .layer(from_fn_with_state(hosts, guard::host));
    open.method_not_allowed_fallback(extract::method_not_allowed)
        .merge(router)
        .layer(from_fn_with_state(api.clone(), guard::every))
        .with_state(api.clone())
}
