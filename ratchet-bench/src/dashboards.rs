//! Dashboards that watch a node while it is measured: the HTTP API of that node, and a process that
//! makes the requests of many browsers.

use std::env;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use futures_util::future::try_join_all;
use ratchet::Node;
use ratchet::http::{Api, Limits, ServeError, serve};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Path that a dashboard requests when it opens, and again after each interval `AGAIN`.
const READ: &str = "/api/overview";
const AGAIN: Duration = Duration::from_secs(30);

/// Line that the process of the dashboards prints when every dashboard receives live updates.
const OPEN: &str = "open";

/// Simulated dashboards that watch one node. They run in a separate process. [`close`](Self::close)
/// closes the dashboards. Dropping this value kills the process.
pub(crate) struct Dashboards {
    process: Child,
    /// Standard input of the process. The process ends when this pipe is closed.
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    shutdown: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

impl Dashboards {
    /// Serves the HTTP API of the node on loopback, and starts the process of the dashboards.
    /// Returns when `count` dashboards are open.
    pub(crate) async fn open(node: &Node, count: usize) -> Result<Self> {
        // The API counts all dashboards as one client, because they share an IP address. One client
        // may have at most three quarters of `event_clients`, so this limit must exceed `count`.
        let limits = Limits::default()
            .event_clients(2 * count)
            .connections(4 * count);
        let api = Api::builder(node.client().clone()).node(node);
        let api = api.limits(limits).build()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (shutdown, stopped) = oneshot::channel();
        let served = tokio::spawn(serve(listener, api, async { drop(stopped.await) }));
        let mut process = Command::new(env::current_exe()?)
            .args(["watch", "--address", &address.to_string()])
            .args(["--dashboards", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process
            .stdin
            .take()
            .context("the process has no standard input")?;
        let output = process
            .stdout
            .take()
            .context("the process has no standard output")?;
        let mut output = BufReader::new(output).lines();
        let said = output.next_line().await?;
        ensure!(said.as_deref() == Some(OPEN), "the dashboards did not open");
        Ok(Self {
            process,
            input,
            output,
            shutdown,
            served,
        })
    }

    /// Closes the dashboards and stops the HTTP API. Returns the smallest number of live updates
    /// that any dashboard received.
    pub(crate) async fn close(mut self) -> Result<usize> {
        drop(self.input);
        let least = self.output.next_line().await?;
        let least =
            least.context("the dashboards did not print how many live updates they received")?;
        ensure!(
            self.process.wait().await?.success(),
            "the process of the dashboards failed"
        );
        drop(self.shutdown);
        self.served.await??;
        Ok(least.parse()?)
    }
}

/// Arguments of the command `watch`: the address of the HTTP API, and the number of dashboards to
/// open.
#[derive(Args)]
pub(crate) struct Watch {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    dashboards: usize,
}

/// Opens dashboards, prints `OPEN`, and counts live updates until the standard input ends. Then
/// prints the smallest number of live updates that any dashboard received.
pub(crate) async fn watch(options: &Watch) -> Result<()> {
    let (close, closed) = watch::channel(false);
    let open = (0..options.dashboards).map(|_| Dashboard::open(options.address));
    let dashboards = try_join_all(open).await?;
    println!("{OPEN}");
    let watching: Vec<_> = dashboards
        .into_iter()
        .map(|dashboard| tokio::spawn(dashboard.watch(closed.clone())))
        .collect();
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    close.send_replace(true);
    let mut least = usize::MAX;
    for events in try_join_all(watching).await? {
        least = least.min(events?);
    }
    println!("{least}");
    Ok(())
}

/// A simulated dashboard: the address of the HTTP API, and the stream of live updates.
struct Dashboard {
    address: SocketAddr,
    updates: TcpStream,
}

impl Dashboard {
    /// Opens a dashboard: requests the overview once, and subscribes to live updates.
    async fn open(address: SocketAddr) -> Result<Self> {
        read_page(address).await?;
        let mut updates = TcpStream::connect(address).await?;
        ask(&mut updates, "/api/events", "keep-alive").await?;
        ensure!(
            count_events(&mut updates).await? > 0,
            "a dashboard received no live update when it opened"
        );
        Ok(Self { address, updates })
    }

    /// Counts the live updates until the dashboard is closed, and returns their number. Requests
    /// the overview again after each interval `AGAIN`.
    async fn watch(mut self, mut closed: watch::Receiver<bool>) -> Result<usize> {
        let mut events = 0;
        let mut again = tokio::time::interval(AGAIN);
        again.tick().await;
        loop {
            tokio::select! {
                _ = closed.changed() => return Ok(events),
                count = count_events(&mut self.updates) => events += count?,
                _ = again.tick() => read_page(self.address).await?,
            }
        }
    }
}

async fn read_page(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    ask(&mut stream, READ, "close").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "GET {READ} did not return 200"
    );
    Ok(())
}

async fn ask(stream: &mut TcpStream, path: &str, connection: &str) -> Result<()> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n");
    Ok(stream.write_all(request.as_bytes()).await?)
}

/// Waits until at least one live update begins in the stream. Returns how many live updates began.
async fn count_events(stream: &mut TcpStream) -> Result<usize> {
    let mut buffer = vec![0; 16_384];
    loop {
        let read = stream.read(&mut buffer).await?;
        ensure!(read > 0, "the server ended the stream of live updates");
        let begin = b"event:";
        let count = buffer[..read]
            .windows(begin.len())
            .filter(|at| at == begin)
            .count();
        if count > 0 {
            return Ok(count);
        }
    }
}
