//! The route of the metrics for Prometheus.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::table::{Content, Route, get};
use crate::api::Api;
use crate::problem::{Code, Problem};

/// The content type of Prometheus's text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/metrics", metrics)
            .says("Returns the metrics of this process in the text format of Prometheus.")
            .answer(StatusCode::OK, "The metrics.", Content::Other("text/plain"))
            .refuses(&[Code::NotFound]),
    ]
}

async fn metrics(State(api): State<Api>) -> Response {
    api.sampler().ask();
    match api.metrics() {
        Some(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        None => Problem::not_found("this API was built without a metrics recorder").into_response(),
    }
}
