//! MongoDB through the facade, with every feature that the build has: what a program sees.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use ratchet::mongo::MongoStore;
use ratchet::{ConnectError, Job, JobContext, JobResult, Ratchet, SharedStore, StoreErrorKind};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

const URL: &str = "RATCHET_TEST_MONGODB_URL";

type Test = fn(&str) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;

const TESTS: &[(&str, Test)] = &[
    ("a_node_runs_jobs", |url| Box::pin(a_node_runs_jobs(url))),
    ("a_url_is_enough", |url| Box::pin(a_url_is_enough(url))),
    ("the_scheme_chooses_it", |url| {
        Box::pin(the_scheme_chooses_it(url))
    }),
    ("encryption_has_a_provider", |url| {
        Box::pin(encryption_has_a_provider(url))
    }),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let url = std::env::var(URL).ok();
    let required = std::env::var("RATCHET_REQUIRE").unwrap_or_default();
    let required = required
        .split(',')
        .any(|name| ["1", "true", "mongodb"].contains(&name));
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
    let prefix = format!("{}.", ratchet::JobId::new());
    let builder = MongoStore::builder(url).database("ratchet_test");
    let store = builder.prefix(&prefix).connect().await.unwrap();
    runs_jobs(Arc::new(store)).await;
    take_away(url, &prefix).await;
}

/// All that the URL can say is the database.
async fn a_url_is_enough(url: &str) {
    let name = format!("ratchet_test_{}", ratchet::JobId::new());
    let (scheme, rest) = url.split_once("://").unwrap();
    let host = rest.split(['/', '?']).next().unwrap();
    let options = url.split_once('?').map_or("", |(_, options)| options);
    let store = ratchet::connect(&format!("{scheme}://{host}/{name}?{options}")).await;
    let store = store.unwrap();
    assert_eq!(store.info().backend, "mongo");
    runs_jobs(store).await;
    let client = mongodb::Client::with_uri_str(url).await.unwrap();
    let database = client.database(&name);
    let mut names = database.list_collection_names().await.unwrap();
    names.retain(|name| !name.starts_with("ratchet_"));
    assert!(names.is_empty(), "{names:?}");
    database.drop().await.unwrap();
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

async fn take_away(url: &str, prefix: &str) {
    let client = mongodb::Client::with_uri_str(url).await.unwrap();
    let database = client.database("ratchet_test");
    for name in database.list_collection_names().await.unwrap() {
        if name.starts_with(prefix) {
            let collection = database.collection::<mongodb::bson::Document>(&name);
            collection.drop().await.unwrap();
        }
    }
}

/// The URL with other options.
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

/// With several drivers in one program, each with a rustls of its own features, there is no provider
/// that rustls could choose by itself. The driver says which, so this is an error and no panic.
async fn encryption_has_a_provider(url: &str) {
    let url = with_options(url, "tls=true&directConnection=true");
    let builder = MongoStore::builder(&url).deadline(Duration::from_secs(2));
    let error = builder.connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
}
