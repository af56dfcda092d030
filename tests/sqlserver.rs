//! SQL Server through the facade, with every feature that the build has: what a program sees.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use ratchet::sqlserver::SqlServerStore;
use ratchet::{ConnectError, Job, JobContext, JobResult, Ratchet, SharedStore, StoreErrorKind};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Notify;

const URL: &str = "RATCHET_TEST_SQLSERVER_URL";

type Test = fn(&str) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;

const TESTS: &[(&str, Test)] = &[
    ("a_node_runs_jobs", |url| Box::pin(a_node_runs_jobs(url))),
    ("the_scheme_chooses_it", |url| {
        Box::pin(the_scheme_chooses_it(url))
    }),
    ("encryption_has_a_provider", |_| {
        Box::pin(encryption_has_a_provider())
    }),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let url = std::env::var(URL).ok();
    let required = std::env::var("RATCHET_REQUIRE").unwrap_or_default();
    let required = required
        .split(',')
        .any(|name| ["1", "true", "sqlserver"].contains(&name));
    let trial = |(name, test): &(&str, Test)| {
        let (url, test) = (url.clone(), *test);
        let ignored = url.is_none() && !required;
        Trial::test(*name, move || run(url, test)).with_ignored_flag(ignored)
    };
    if url.is_none() {
        eprintln!("{URL} is not set");
    }
    libtest_mimic::run(&arguments, TESTS.iter().map(trial).collect()).exit_code()
}

fn run(url: Option<String>, test: Test) -> Result<(), Failed> {
    let url = url.ok_or(format!("{URL} is not set"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(test(&url));
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Count;

#[derive(Default)]
struct Counter {
    count: AtomicUsize,
    done: Notify,
}

impl Job for Count {
    const KIND: &'static str = "count";
    type Output = ();

    async fn run(self, context: JobContext) -> JobResult<()> {
        let counter = context.state::<Arc<Counter>>();
        counter.count.fetch_add(1, Ordering::SeqCst);
        counter.done.notify_one();
        Ok(())
    }
}

async fn a_node_runs_jobs(url: &str) {
    let schema = format!("test_{}", ratchet::JobId::new());
    let builder = SqlServerStore::builder(url).schema(&schema);
    let builder = builder.deadline(Duration::from_secs(60));
    let store = builder.max_connections(3).connect().await.unwrap();
    runs_jobs(Arc::new(store.clone())).await;
    take_away(&store, &schema).await;
}

async fn runs_jobs(store: SharedStore) {
    let counter = Arc::new(Counter::default());
    let node = Ratchet::builder(store)
        .register::<Count>()
        .state(Arc::clone(&counter))
        .build()
        .unwrap();
    let client = node.client().clone();
    let done = async {
        for _ in 0..10 {
            client.enqueue(Count.into_job()).await.unwrap();
        }
        while counter.count.load(Ordering::SeqCst) < 10 {
            counter.done.notified().await;
        }
    };
    node.run_until(done).await.unwrap();
    let queues = client.queues().await.unwrap();
    let succeeded: u64 = queues.iter().flat_map(|queue| queue.counts.values()).sum();
    assert_eq!(succeeded, 10);
}

async fn take_away(store: &SqlServerStore, schema: &str) {
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
    // A connection string is no URL, and nothing of it is told.
    let error = ratchet::connect("Server=tcp:host;Password=secret").await;
    assert!(!error.unwrap_err().to_string().contains("secret"));
}

/// With several drivers in one program, each with a rustls of its own features, there is no provider
/// that rustls could choose by itself. The driver says which, so this is an error and no panic.
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
