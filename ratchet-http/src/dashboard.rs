//! Serves the dashboard: static files that are embedded in the program.
//!
//! Every client may load the files, because they contain no data: scripts in the pages read the
//! data from the API. The files use relative URLs, so the dashboard works below any path.

use axum::Router;
use axum::extract::OriginalUri;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rust_embed::{EmbeddedFile, RustEmbed};

use crate::api::Api;
use crate::extract::Path;
use crate::problem::Problem;

#[derive(RustEmbed)]
#[folder = "dashboard/"]
struct Files;

/// The page that loads all other files.
const INDEX: &str = "index.html";

/// Adds the routes of the dashboard, and a redirect from the root of the API to the dashboard.
pub(crate) fn add(router: Router<Api>) -> Router<Api> {
    router
        .route("/", get(|uri| redirect(uri, "dashboard/")))
        .route("/dashboard", get(|uri| redirect(uri, "")))
        .route("/dashboard/", get(|headers| file(headers, INDEX)))
        .route("/dashboard/{*path}", get(named))
}

/// Redirects to `below`, relative to the requested path.
///
/// A browser resolves a relative URL against the requested path up to its last slash. So if the
/// path does not end in a slash, the target must repeat the last segment of the path.
#[expect(clippy::unused_async, reason = "handlers must be async")]
async fn redirect(OriginalUri(uri): OriginalUri, below: &'static str) -> Response {
    let last = uri.path().rsplit('/').next().unwrap_or_default();
    let slash = if last.is_empty() { "" } else { "/" };
    match HeaderValue::from_str(&format!("{last}{slash}{below}")) {
        Ok(to) => (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response(),
        Err(_) => Problem::not_found("nothing is served at this path").into_response(),
    }
}

async fn named(Path(path): Path<String>, headers: HeaderMap) -> Response {
    file(headers, &path).await
}

#[expect(clippy::unused_async, reason = "handlers must be async")]
async fn file(headers: HeaderMap, path: &str) -> Response {
    let Some(file) = Files::get(path) else {
        return Problem::not_found("the dashboard has no such file").into_response();
    };
    let Ok(tag) = HeaderValue::from_str(&tag(&file)) else {
        return Problem::not_found("the dashboard has no such file").into_response();
    };
    // The files change only with the program. Browsers validate their copy each time, and get 304
    // if the copy is current.
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut known = known.filter_map(|tags| tags.to_str().ok());
    let same = known.any(|tags| {
        let mut tags = tags.split(',').map(str::trim);
        tags.any(|one| one == "*" || one.trim_start_matches("W/") == tag)
    });
    let cached = [
        (header::ETAG, tag),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if same {
        return (StatusCode::NOT_MODIFIED, cached).into_response();
    }
    let kind = [(header::CONTENT_TYPE, content_type(path))];
    (cached, kind, file.data).into_response()
}

/// Returns the entity tag of a file, which is the first half of the hash of its content.
fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let mut text = String::from("\"");
    for byte in &hash[..16] {
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('"');
    text
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_type_that_browsers_run() {
        for path in Files::iter() {
            assert_ne!(content_type(&path), "application/octet-stream", "{path}");
        }
        assert!(Files::get(INDEX).is_some());
    }
}
