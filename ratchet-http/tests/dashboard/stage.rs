//! The environment of a test case: a database, nodes, a browser, and a server of the API below a
//! path.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use axum::Router;
use http::request::Parts;
use ratchet_core::model::NodeStatus;
use ratchet_core::{Client, JobId, JobState, Node, Ratchet, SharedStore};
use ratchet_http::{Access, Api, Authorizer, Denied, Limits, Payloads};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::Body;
use crate::jobs::{Broken, Echo, Second, Slow};
use crate::page::Page;
use crate::stores::{Database, Store};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The path of the API.
const BELOW: &str = "/ops/ratchet";

/// An authorizer that allows every request.
struct Anybody;

#[async_trait]
impl Authorizer for Anybody {
    async fn authorize(&self, _: &Parts, _: Access) -> Result<(), Denied> {
        Ok(())
    }
}

/// The access that the API allows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum May {
    Read,
    Write,
}

/// The environment of a case.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) store: SharedStore,
    pub(crate) page: Page,
    node: Node,
    nodes: Vec<(watch::Sender<bool>, JoinHandle<()>)>,
    server: Option<Server>,
    address: SocketAddr,
}

struct Server {
    api: Api,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Runs a test case in a new environment. Fails if the case fails, if the browser's console has
/// errors, or if the page sent a request to an address outside the API.
pub(crate) fn run(store: &Store, body: Body) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let database = store.create().await.map_err(|error| format!("{error:#}"))?;
        let outcome = act(&database, body).await;
        let taken = database.take_away().await;
        outcome.and(taken).map_err(|error| format!("{error:#}"))
    })
}

async fn act(database: &Database, body: Body) -> Result<()> {
    let mut stage = Stage::build(database).await?;
    let done = body(&mut stage).await;
    let page = stage.page.describe().await;
    let told = stage.listen();
    stage.strike().await?;
    done.with_context(|| format!("the page then:\n{page}"))?;
    told
}

impl Stage {
    async fn build(database: &Database) -> Result<Self> {
        let second = Duration::from_secs(1);
        let node = Ratchet::builder(Arc::clone(&database.store))
            .label("first")
            .register::<Echo>()
            .register::<Broken>()
            .register::<Slow>()
            .register::<Second>()
            .heartbeat_interval(second)
            .poll_interval(Duration::from_millis(20), Duration::from_millis(200))
            .drain_grace(second)
            .concurrency(16)
            .build()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        drop(listener);
        let mut stage = Self {
            client: node.client().clone(),
            store: Arc::clone(&database.store),
            page: Page::open().await?,
            node,
            nodes: Vec::new(),
            server: None,
            address,
        };
        stage.serve(May::Write).await?;
        Ok(stage)
    }

    /// Starts a server of the API. Stops the previous server first.
    pub(crate) async fn serve(&mut self, may: May) -> Result<()> {
        self.serve_within(may, Limits::default()).await
    }

    /// Starts a server of the API with these limits. Stops the previous server first.
    pub(crate) async fn serve_within(&mut self, may: May, limits: Limits) -> Result<()> {
        self.stop_serving().await?;
        let api = Api::builder(self.client.clone())
            .node(&self.node)
            .limits(limits);
        let api = match may {
            May::Read => api,
            May::Write => api.authorize(Anybody).payloads(Payloads::Shown),
        };
        let api = api.build()?;
        let app = Router::new().nest_service(BELOW, api.router());
        let listener = TcpListener::bind(self.address).await?;
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
            axum::serve(listener, app)
                .with_graceful_shutdown(until)
                .await
                .ok();
        });
        self.server = Some(Server { api, stop, task });
        Ok(())
    }

    /// Stops the server. This ends the event streams and closes the connections.
    pub(crate) async fn stop_serving(&mut self) -> Result<()> {
        if let Some(Server { api, stop, task }) = self.server.take() {
            api.close();
            stop.send_replace(true);
            timeout(PATIENCE, task)
                .await
                .context("the server did not stop in time")??;
        }
        Ok(())
    }

    /// Runs the default node until the end of the case.
    pub(crate) async fn work(&mut self) -> Result<()> {
        self.run(self.node.clone()).await
    }

    /// Runs a node until the end of the case.
    pub(crate) async fn run(&mut self, node: Node) -> Result<()> {
        let (stop, mut stopped) = watch::channel(false);
        let runs = node.clone();
        let task = tokio::spawn(async move {
            let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
            runs.run_until(until).await.ok();
        });
        self.nodes.push((stop, task));
        eventually("the node is active", || async {
            Ok(node.status() == NodeStatus::Active)
        })
        .await
    }

    /// Returns the address of a page of the dashboard.
    pub(crate) fn url(&self, place: &str) -> String {
        format!("http://{}{BELOW}/dashboard/{place}", self.address)
    }

    /// Loads a page of the dashboard.
    pub(crate) async fn visit(&self, place: &str) -> Result<()> {
        self.page.load(&self.url(place)).await
    }

    /// Waits until a job is in a state.
    pub(crate) async fn until_state(&self, job: JobId, state: JobState) -> Result<()> {
        let what = format!("job {job} is {state}");
        eventually(&what, || async move {
            let job = self.client.job(job).await?;
            Ok(job.is_some_and(|job| job.state == state))
        })
        .await
    }

    /// Fails if the browser's console has errors, or if the page sent a request to an address
    /// outside the API.
    fn listen(&self) -> Result<()> {
        let complaints = self.page.complaints();
        ensure!(
            complaints.is_empty(),
            "expected no errors in the console, found {complaints:#?}"
        );
        let own = format!("http://{}{BELOW}/", self.address);
        for url in self.page.requests() {
            ensure!(
                url.starts_with(&own) || url == "about:blank",
                "expected only requests to the address of the API, found {url}"
            );
        }
        Ok(())
    }

    async fn strike(mut self) -> Result<()> {
        self.stop_serving().await?;
        for (stop, task) in self.nodes.drain(..) {
            stop.send_replace(true);
            timeout(PATIENCE, task)
                .await
                .context("a node did not stop in time")??;
        }
        Ok(())
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually<F, W>(what: &str, mut holds: W) -> Result<()>
where
    W: FnMut() -> F,
    F: Future<Output = Result<bool>>,
{
    let wait = async {
        while !holds().await? {
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    };
    match timeout(PATIENCE, wait).await {
        Ok(done) => done,
        Err(_) => bail!("timed out waiting until {what}"),
    }
}
