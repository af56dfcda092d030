//! Shared test code: jobs whose bodies are closures, and nodes that run as tasks of the test.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::model::{Attempt, Detail};
use ratchet_core::store::JobStore;
use ratchet_core::{
    Job, JobContext, JobId, JobRecord, JobResult, MemoryStore, NewJob, Node, NodeBuilder, Ratchet,
    Requires, RunError,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

type Body = Pin<Box<dyn Future<Output = JobResult<serde_json::Value>> + Send>>;
type Script = Arc<dyn Fn(JobContext) -> Body + Send + Sync>;

/// The bodies of jobs, by name.
#[derive(Clone, Default)]
pub(crate) struct Scripts(Arc<Mutex<BTreeMap<String, Script>>>);

/// A job whose body is the script with its name.
#[derive(Serialize, Deserialize)]
pub(crate) struct Scripted {
    name: String,
}

impl Job for Scripted {
    const KIND: &'static str = "scripted";
    type Output = serde_json::Value;

    async fn run(self, ctx: JobContext) -> JobResult<serde_json::Value> {
        let script = Arc::clone(&ctx.state::<Scripts>().0.lock().unwrap()[&self.name]);
        script(ctx).await
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Scripts>()
    }
}

/// A store and the scripts. Its methods start nodes that use both.
pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) scripts: Scripts,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            scripts: Scripts::default(),
        }
    }

    /// Sets the script with this name, and returns a job that runs it.
    pub(crate) fn job<F, T>(
        &self,
        name: &str,
        body: impl Fn(JobContext) -> F + Send + Sync + 'static,
    ) -> NewJob
    where
        F: Future<Output = JobResult<T>> + Send + 'static,
        T: Serialize + 'static,
    {
        let script: Script = Arc::new(move |ctx| {
            let body = body(ctx);
            Box::pin(async move { Ok(serde_json::to_value(body.await?)?) })
        });
        self.scripts
            .0
            .lock()
            .unwrap()
            .insert(name.to_owned(), script);
        let name = name.to_owned();
        Scripted { name }.into_job()
    }

    pub(crate) fn builder(&self) -> NodeBuilder {
        self.builder_on(self.store.clone())
    }

    pub(crate) fn builder_on(&self, store: MemoryStore) -> NodeBuilder {
        Ratchet::builder(Arc::new(store))
            .register::<Scripted>()
            .state(self.scripts.clone())
            .seed(7)
    }

    /// Starts a node with the default settings.
    pub(crate) fn start(&self) -> Started {
        Started::new(self.builder().build().unwrap())
    }

    pub(crate) async fn enqueue(&self, job: NewJob) -> JobId {
        self.store.enqueue(&[job]).await.unwrap()[0].id()
    }

    pub(crate) async fn read(&self, id: JobId) -> JobRecord {
        self.store
            .get(&[id], Detail::Whole)
            .await
            .unwrap()
            .pop()
            .flatten()
            .unwrap()
    }

    pub(crate) async fn store_history(&self, id: JobId) -> Vec<Attempt> {
        self.store.history(id).await.unwrap()
    }

    /// Waits until the job has ended, and returns it.
    pub(crate) async fn ended(&self, id: JobId) -> JobRecord {
        self.until(id, |job| job.state.is_terminal()).await
    }

    /// Waits until the job satisfies a condition, and returns it.
    pub(crate) async fn until(&self, id: JobId, is: impl Fn(&JobRecord) -> bool) -> JobRecord {
        for _ in 0..100_000 {
            let job = self.read(id).await;
            if is(&job) {
                return job;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!(
            "the job should have satisfied the condition, found: {:?}",
            self.read(id).await
        );
    }
}

/// A node that runs in a separate task.
pub(crate) struct Started {
    pub(crate) node: Node,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Started {
    pub(crate) fn new(node: Node) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn({
            let node = node.clone();
            async move { node.run_until(stopped).await }
        });
        Self {
            node,
            stop: Some(stop),
            task,
        }
    }

    /// Shuts the node down gracefully.
    pub(crate) async fn stop(mut self) -> Result<(), RunError> {
        drop(self.stop.take());
        self.task.await.unwrap()
    }

    /// Waits until the node stops without being asked to.
    pub(crate) async fn ended(self) -> Result<(), RunError> {
        let Self { stop, task, .. } = self;
        let ended = task.await.unwrap();
        drop(stop);
        ended
    }

    /// Ends the node abruptly, as SIGKILL would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Shuts nodes down gracefully, one after the other.
pub(crate) async fn stop_all(nodes: impl IntoIterator<Item = Started>) {
    for node in nodes {
        node.stop().await.unwrap();
    }
}
