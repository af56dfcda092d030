//! The files of the dashboard.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use ratchet_core::{MemoryStore, Ratchet};
use ratchet_http::Api;

use crate::kit::{get, send};

fn api() -> Api {
    Api::builder(Ratchet::client(Arc::new(MemoryStore::new())))
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_root_leads_to_the_pages_below_any_path() {
    let api = api();
    let nested = Router::new().nest_service("/ops/ratchet", api.router());
    let deeper = Router::new().nest("/a", Router::new().nest_service("/b", api.router()));
    let cases = [
        (api.router(), "/", "dashboard/"),
        (api.router(), "/dashboard", "dashboard/"),
        (nested.clone(), "/ops/ratchet/", "dashboard/"),
        (nested.clone(), "/ops/ratchet", "ratchet/dashboard/"),
        (nested.clone(), "/ops/ratchet/dashboard", "dashboard/"),
        (deeper.clone(), "/a/b", "b/dashboard/"),
    ];
    for (router, uri, to) in cases {
        let answer = get(&router, uri).await;
        assert_eq!(answer.status, 303, "{uri}");
        assert_eq!(answer.headers["location"], to, "{uri}");
    }
    for (router, uri) in [
        (api.router(), "/dashboard/"),
        (nested, "/ops/ratchet/dashboard/"),
        (deeper, "/a/b/dashboard/index.html"),
    ] {
        let answer = get(&router, uri).await;
        assert_eq!(answer.status, 200, "{uri}");
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
        assert!(answer.text.starts_with("<!doctype html>"));
    }
}

#[tokio::test]
async fn a_path_with_open_parts_before_it_changes_nothing() {
    let api = api();
    let router = Router::new()
        .nest_service("/{tenant}/{id}", api.router())
        .nest(
            "/{id}",
            Router::new().nest_service("/in/{role}/ratchet", api.router()),
        );
    for below in ["/acme/eu", "/acme/in/eu/ratchet"] {
        let id = ratchet_core::JobId::new();
        let answer = get(&router, &format!("{below}/api/jobs/{id}")).await;
        assert_eq!(answer.json()["code"], "not_found", "{below}");
        let answer = get(&router, &format!("{below}/leader/a%2Fb")).await;
        assert_eq!(answer.json()["role"], "a/b", "{below}");
        let answer = get(&router, &format!("{below}/dashboard/js/main.js")).await;
        assert_eq!(answer.status, 200, "{below}");
        let answer = get(&router, &format!("{below}/dashboard")).await;
        assert_eq!(answer.headers["location"], "dashboard/", "{below}");
    }
}

#[tokio::test]
async fn files_are_sent_once() {
    let router = api().router();
    let first = get(&router, "/dashboard/js/main.js").await;
    assert_eq!(
        first.headers["content-type"],
        "text/javascript; charset=utf-8"
    );
    assert_eq!(first.headers["cache-control"], "no-cache");
    let tag = first.headers["etag"].clone();
    let again = |tags: String| {
        Request::get("/dashboard/js/main.js")
            .header("if-none-match", tags)
            .body(Body::empty())
            .unwrap()
    };
    let tag = tag.to_str().unwrap();
    for known in [
        tag.to_owned(),
        format!("\"other\", W/{tag}"),
        "*".to_owned(),
    ] {
        let answer = send(&router, again(known)).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (304, ""));
        assert_eq!(answer.headers["etag"], tag);
    }
    let other = send(&router, again("\"other\"".to_owned())).await;
    assert_eq!(other.status, 200);
}

#[tokio::test]
async fn nothing_but_the_files_can_be_had() {
    let router = api().router();
    for uri in [
        "/dashboard/nothing.js",
        "/dashboard/../Cargo.toml",
        "/dashboard/..%2fCargo.toml",
        "/dashboard/%2e%2e/%2e%2e/etc/passwd",
        "/dashboard//etc/passwd",
    ] {
        assert_eq!(get(&router, uri).await.status, 404, "{uri}");
    }
}
