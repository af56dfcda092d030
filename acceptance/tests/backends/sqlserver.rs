//! Tests of SQL Server.

use std::sync::Arc;
use std::time::Duration;

use ratchet::sqlserver::SqlServerStore;
use ratchet::{Checked, ConnectError, StoreErrorKind};
use tokio::net::TcpListener;

use crate::{Backend, runs_jobs};

pub(crate) static BACKEND: Backend = Backend {
    name: "sqlserver",
    url: "RATCHET_TEST_SQLSERVER_URL",
    tests: &[
        ("a_node_runs_jobs", |url| Box::pin(a_node_runs_jobs(url))),
        ("the_scheme_chooses_it", |url| {
            Box::pin(the_scheme_chooses_it(url))
        }),
        ("encryption_has_a_provider", |_| {
            Box::pin(encryption_has_a_provider())
        }),
    ],
};

async fn a_node_runs_jobs(url: &str) {
    let schema = format!("test_{}", ratchet::JobId::new());
    let builder = SqlServerStore::builder(url).schema(&schema);
    let builder = builder.deadline(Duration::from_secs(60));
    let store = builder.max_connections(3).connect().await.unwrap();
    runs_jobs(Arc::new(store.clone())).await;
    take_away(&store, &schema).await;
}

async fn take_away(store: &Checked<SqlServerStore>, schema: &str) {
    let tables = format!(
        "SELECT CAST(t.name AS nvarchar(128)) FROM sys.tables AS t
         JOIN sys.schemas AS s ON s.schema_id = t.schema_id WHERE s.name = N'{schema}'"
    );
    let mut tx = store.begin().await.unwrap();
    for table in tx.query(&tables, &[]).await.unwrap() {
        let table: &str = table.get(0).unwrap();
        let drop = format!("DROP TABLE [{schema}].[{table}]");
        tx.execute(&drop, &[]).await.unwrap();
    }
    let drop = format!("DROP SCHEMA [{schema}]");
    tx.execute(&drop, &[]).await.unwrap();
    tx.commit().await.unwrap();
}

async fn the_scheme_chooses_it(url: &str) {
    let (_, rest) = url.split_once("://").unwrap();
    for scheme in ["sqlserver", "mssql"] {
        let place = rest.split('?').next().unwrap();
        let error = ratchet::connect(&format!("{scheme}://{place}?sslmode=require")).await;
        let ConnectError::Store(error) = error.unwrap_err() else {
            panic!("another store")
        };
        assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
        assert!(error.to_string().contains("`sslmode`"), "{error}");
    }
    // A connection string is not a URL, and no part of it may appear in the error.
    let error = ratchet::connect("Server=tcp:host;Password=secret").await;
    assert!(!error.unwrap_err().to_string().contains("secret"));
}

/// Checks that the driver tells rustls which crypto provider to use. Otherwise, rustls would panic
/// if several drivers in one program enable different providers. Here the connection cannot be
/// opened, and must fail with an error, not with a panic.
async fn encryption_has_a_provider() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gone = tokio::spawn(async move { drop(listener.accept().await) });
    let url = format!("sqlserver://me:secret@{address}/db?encrypt=strict");
    let ConnectError::Store(error) = ratchet::connect(&url).await.unwrap_err() else {
        panic!("another store")
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    gone.await.unwrap();
}
