//! Tests of MongoDB.

use std::sync::Arc;
use std::time::Duration;

use ratchet::mongo::MongoStore;
use ratchet::{ConnectError, StoreErrorKind};

use crate::{Backend, runs_jobs};

pub(crate) static BACKEND: Backend = Backend {
    name: "mongodb",
    url: "RATCHET_TEST_MONGODB_URL",
    tests: &[
        ("a_node_runs_jobs", |url| Box::pin(a_node_runs_jobs(url))),
        ("a_url_is_enough", |url| Box::pin(a_url_is_enough(url))),
        ("the_scheme_chooses_it", |url| {
            Box::pin(the_scheme_chooses_it(url))
        }),
        ("encryption_has_a_provider", |url| {
            Box::pin(encryption_has_a_provider(url))
        }),
    ],
};

async fn a_node_runs_jobs(url: &str) {
    let prefix = format!("{}.", ratchet::JobId::new());
    let builder = MongoStore::builder(url).database("ratchet_test");
    let store = builder.prefix(&prefix).connect().await.unwrap();
    runs_jobs(Arc::new(store)).await;
    take_away(url, &prefix).await;
}

/// Connects with a URL that names the database, without any other setting.
async fn a_url_is_enough(url: &str) {
    let name = format!("ratchet_test_{}", ratchet::JobId::new());
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split(['/', '?']).next().unwrap();
    let options = url.split_once('?').map_or("", |(_, options)| options);
    let store = ratchet::connect(&format!("{scheme}://{host}/{name}?{options}")).await;
    let store = store.unwrap();
    assert_eq!(store.info().backend, "mongo");
    runs_jobs(store).await;
    let client = ::mongodb::Client::with_uri_str(url).await.unwrap();
    let database = client.database(&name);
    let mut names = database.list_collection_names().await.unwrap();
    names.retain(|name| !name.starts_with("ratchet_"));
    assert!(names.is_empty(), "{names:?}");
    database.drop().await.unwrap();
}

async fn take_away(url: &str, prefix: &str) {
    let client = ::mongodb::Client::with_uri_str(url).await.unwrap();
    let database = client.database("ratchet_test");
    for name in database.list_collection_names().await.unwrap() {
        if name.starts_with(prefix) {
            let collection = database.collection::<::mongodb::bson::Document>(&name);
            collection.drop().await.unwrap();
        }
    }
}

/// Returns `url` with its options replaced by `options`.
fn with_options(url: &str, options: &str) -> String {
    let place = url.split('?').next().unwrap();
    format!("{place}?{options}")
}

async fn the_scheme_chooses_it(url: &str) {
    let url = with_options(url, "w=1");
    let error = ratchet::connect(&url).await.unwrap_err();
    let ConnectError::Store(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    let error = ratchet::connect("mongodb+srv://host.invalid/jobs").await;
    assert!(matches!(error.unwrap_err(), ConnectError::Store(_)));
}

/// Checks that the driver tells rustls which crypto provider to use. Otherwise, rustls would panic
/// if several drivers in one program enable different providers. Here the connection cannot be
/// opened, and must fail with an error, not with a panic.
async fn encryption_has_a_provider(url: &str) {
    let url = with_options(url, "tls=true&directConnection=true");
    let builder = MongoStore::builder(&url).deadline(Duration::from_secs(2));
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}
