//! Tests of the stores through the facade, as a program uses them, with all features enabled.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod mongodb;
mod mysql;
mod sqlserver;

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};
use ratchet::{Job, JobContext, JobResult, Ratchet, Requires, SharedStore};
use ratchet_conformance::is_required;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// The tests on one server, each with its name. Every test receives the server's URL.
struct Backend {
    name: &'static str,
    /// The variable with the server's URL. Without it the tests are ignored.
    url: &'static str,
    tests: &'static [(&'static str, Test)],
}

type Test = fn(&str) -> Pin<Box<dyn Future<Output = ()> + '_>>;

impl Backend {
    fn trials(&'static self) -> impl Iterator<Item = Trial> {
        let url = std::env::var(self.url).ok();
        let ignored = url.is_none() && !is_required(self.name);
        self.tests.iter().map(move |(name, test)| {
            let url = url
                .clone()
                .ok_or_else(|| format!("{} is not set", self.url));
            Trial::test(format!("{}::{name}", self.name), move || run(url, *test))
                .with_ignored_flag(ignored)
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let backends = [&mongodb::BACKEND, &mysql::BACKEND, &sqlserver::BACKEND];
    let trials = backends.into_iter().flat_map(Backend::trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(url: Result<String, String>, test: Test) -> Result<(), Failed> {
    let url = url?;
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

    fn requires() -> Requires {
        Requires::nothing().state::<Arc<Counter>>()
    }

    async fn run(self, context: JobContext) -> JobResult<()> {
        let counter = context.state::<Arc<Counter>>();
        counter.count.fetch_add(1, Ordering::SeqCst);
        counter.done.notify_one();
        Ok(())
    }
}

/// Runs ten jobs on a node.
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
