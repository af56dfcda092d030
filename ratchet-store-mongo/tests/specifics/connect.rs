//! Connections that work, and connections that are refused.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use ratchet_conformance::kit::{assert_kind, enqueue, exists, job};
use ratchet_core::StoreErrorKind;
use ratchet_core::store::{NodeStore, Store};
use ratchet_store_mongo::MongoStore;

use crate::faults::Fault;
use crate::open;
use crate::server::Space;

/// Returns the URL of the server with other credentials and options.
fn with(space: &Space, credentials: &str, options: &str) -> String {
    let rest = space.url.strip_prefix("mongodb://").unwrap();
    let host = rest.split(['/', '?']).next().unwrap();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("mongodb://{credentials}{host}/?{options}")
}

pub(crate) async fn a_wrong_password_is_misconfigured(space: Arc<Space>) {
    let url = with(&space, "nobody:secret@", "directConnection=true");
    let error = MongoStore::connect(&url).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

pub(crate) async fn an_unknown_replica_set_is_misconfigured(space: Arc<Space>) {
    let url = with(&space, "", "replicaSet=another");
    let builder = MongoStore::builder(&url).deadline(Duration::from_secs(4));
    let error = builder.connect().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    let text = error.to_string();
    assert!(
        text.contains("`another`") && text.contains("`rs0`"),
        "{text}"
    );
}

pub(crate) async fn a_server_that_is_not_there_is_unavailable(_: Arc<Space>) {
    // Binds a port but does not listen on it, so that nothing accepts the store's connections.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let builder = MongoStore::builder(&format!("mongodb://me:secret@{address}/"));
    let error = builder.deadline(Duration::from_secs(2)).connect().await;
    let error = error.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

pub(crate) async fn a_closed_store_refuses(space: Arc<Space>) {
    let store = open(&space).await;
    let clone = store.clone();
    enqueue(&store, job()).await;
    store.close().await;
    let error = clone.database_time().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Unavailable);
    // The store itself has no coordinator any more. The coordinator that the core provides instead
    // needs no connection.
    assert!((*clone).coordinator().is_none());
}

pub(crate) async fn a_database_of_the_application_works(space: Arc<Space>) {
    let client = Client::with_uri_str(&space.url).await.unwrap();
    let database = client.database(space.database.name());
    let builder = || MongoStore::database_builder(database.clone()).prefix(&space.prefix);
    let store = builder().connect().await.unwrap();
    let id = enqueue(&store, job()).await;
    store.database_time().await.unwrap();
    store.close().await;
    assert!(exists(&open(&space).await, id).await);
    database.list_collection_names().await.unwrap();
    let error = builder().max_connections(3).connect().await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
}

pub(crate) async fn a_missing_right_is_misconfigured(space: Arc<Space>) {
    open(&space).await;
    for command in [
        "create",
        "createIndexes",
        "find",
        "listCollections",
        "listIndexes",
    ] {
        let fault = Fault::new(&space, &[command]).code(13).always().set().await;
        let name = space.name("more_");
        let builder = fault.builder(&space).prefix(name).connect().await;
        let error = builder.unwrap_err();
        assert_kind(&error, StoreErrorKind::Misconfigured);
        fault.lift().await;
    }
}
