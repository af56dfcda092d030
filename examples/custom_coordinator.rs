//! A coordinator of one's own: wakeups over Redis, from one process to a node in another.
//!
//! ```sh
//! redis-server --port 6379 &
//! cargo run --release --example custom_coordinator [-- redis://127.0.0.1:6379/]
//! ```
//!
//! The jobs are in an SQLite file, and both processes open it. The node polls every five seconds;
//! a wakeup makes it look at once. Stop Redis and everything still works, at the speed of polling.
#![expect(clippy::print_stdout, reason = "it prints what happened")]

use std::process::{ExitCode, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use futures_util::StreamExt;
use ratchet::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use ratchet::{Client, Job, JobContext, JobResult, Name, NodeId, Ratchet};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{sleep, timeout};

/// Carries wakeups through a channel of a Redis server.
///
/// `notify` only hands the hint to a task that publishes it; a second task receives what everybody
/// publishes. Each has a connection and makes a new one when it breaks.
#[derive(Clone, Debug)]
struct RedisCoordinator {
    outgoing: mpsc::Sender<Wakeup>,
    incoming: broadcast::Sender<Wakeup>,
}

impl RedisCoordinator {
    /// Hints that may wait for the connection, or for a subscriber; more are dropped.
    const CAPACITY: usize = 256;
    /// How long to wait before connecting again.
    const PAUSE: Duration = Duration::from_secs(1);

    /// Joins a channel: one per database, so that nobody wakes the nodes of another.
    async fn connect(url: &str, channel: &str) -> Result<Self> {
        let redis = redis::Client::open(url)?;
        // Nothing depends on Redis, so a node could start without it. A person who tries this out
        // wants to know.
        let asked = timeout(Duration::from_secs(3), subscribe(&redis, channel));
        let subscription = asked.await.context("no answer in 3 s")??;
        let (outgoing, hints) = mpsc::channel(Self::CAPACITY);
        let incoming = broadcast::Sender::new(Self::CAPACITY);
        let channel = channel.to_owned();
        tokio::spawn(publish(redis.clone(), channel.clone(), hints));
        tokio::spawn(receive(redis, channel, subscription, incoming.clone()));
        Ok(Self { outgoing, incoming })
    }
}

#[async_trait]
impl ClusterCoordinator for RedisCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        // Full: Redis is slow or gone. The hint is dropped and the next poll finds the job.
        let _ = self.outgoing.try_send(wakeup);
    }

    fn subscribe(&self) -> WakeupStream {
        self.incoming.subscribe().into()
    }
}

/// Publishes hints until every clone of the coordinator is gone.
async fn publish(redis: redis::Client, channel: String, mut hints: mpsc::Receiver<Wakeup>) {
    let mut connection = None;
    while let Some(hint) = hints.recv().await {
        if connection.is_none() {
            connection = redis.get_multiplexed_async_connection().await.ok();
        }
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&channel).arg(Message::from(&hint).to_text());
        let sent = match &mut connection {
            Some(connection) => publish.query_async::<()>(connection).await.is_ok(),
            None => false,
        };
        if !sent {
            connection = None;
            sleep(RedisCoordinator::PAUSE).await;
        }
    }
}

async fn subscribe(redis: &redis::Client, channel: &str) -> redis::RedisResult<redis::aio::PubSub> {
    let mut subscription = redis.get_async_pubsub().await?;
    subscription.subscribe(channel).await?;
    Ok(subscription)
}

/// Passes on what is published, for as long as the process lives.
async fn receive(
    redis: redis::Client,
    channel: String,
    mut subscription: redis::aio::PubSub,
    incoming: broadcast::Sender<Wakeup>,
) {
    loop {
        let mut messages = subscription.on_message();
        while let Some(message) = messages.next().await {
            let text = message.get_payload::<String>().unwrap_or_default();
            if let Some(message) = Message::of_text(&text) {
                // An error only says that nobody listens.
                let _ = incoming.send(message.into());
            }
        }
        drop(messages);
        subscription = loop {
            sleep(RedisCoordinator::PAUSE).await;
            if let Ok(subscription) = subscribe(&redis, &channel).await {
                break subscription;
            }
        };
        // Whatever was published in between is lost: look everywhere.
        let _ = incoming.send(Wakeup::any());
    }
}

/// A wakeup on its way.
#[derive(Serialize, Deserialize)]
struct Message {
    queue: Option<String>,
    source: Option<String>,
}

impl Message {
    fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// None for what somebody else wrote into the channel.
    fn of_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl From<&Wakeup> for Message {
    fn from(wakeup: &Wakeup) -> Self {
        Self {
            queue: wakeup.queue.as_ref().map(ToString::to_string),
            source: wakeup.source.map(|node| node.to_string()),
        }
    }
}

impl From<Message> for Wakeup {
    fn from(message: Message) -> Self {
        // A name that is none here means any queue.
        let queue = message
            .queue
            .and_then(|name| Name::new("queue", &name).ok());
        let source = message.source.and_then(|id| NodeId::from_str(&id).ok());
        let mut wakeup = queue.map_or_else(Self::any, Self::queue);
        if let Some(source) = source {
            wakeup = wakeup.from_node(source);
        }
        wakeup
    }
}

/// Says hello in the process that runs it.
#[derive(Serialize, Deserialize)]
struct Hello;

impl Job for Hello {
    const KIND: &'static str = "hello";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        println!("    process {}: the job runs here", std::process::id());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("custom_coordinator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] => show("redis://127.0.0.1:6379/").await,
        ["node", database, redis] => node(database, redis).await,
        [redis] => show(redis).await,
        _ => bail!("usage: custom_coordinator [REDIS_URL]"),
    }
}

/// The channel of this database.
fn channel(database: &str) -> String {
    format!("ratchet:wakeups:{database}")
}

/// The second process: a node, until its standard input ends.
async fn node(database: &str, redis: &str) -> Result<()> {
    let poll = Duration::from_secs(5);
    let node = Ratchet::builder(ratchet::connect(database).await?)
        .register::<Hello>()
        .poll_interval(poll, poll)
        .coordinator(RedisCoordinator::connect(redis, &channel(database)).await?)
        .build()?;
    println!(
        "    process {}: a node, polls every 5 s",
        std::process::id()
    );
    let input_ends = async {
        let _ = tokio::io::stdin().read(&mut [0]).await;
    };
    Ok(node.run_until(input_ends).await?)
}

/// The first process: enqueues, and looks how long the other one takes.
async fn show(redis: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let database = format!("sqlite://{}", folder.path().join("jobs.db").display());
    let coordinator = RedisCoordinator::connect(redis, &channel(&database)).await;
    let coordinator = coordinator.with_context(|| {
        format!("no Redis answers at {redis}: start one with `redis-server`, or name one")
    })?;
    let silent = Ratchet::client(ratchet::connect(&database).await?);
    let waking = silent.with_coordinator(coordinator);

    println!("Process {} starts another one:", std::process::id());
    let mut child = start_node(&database, redis).await?;
    println!("\nWithout a wakeup the node finds a job at its next poll:");
    enqueue_and_wait(&silent).await?;
    println!("\nWith a wakeup through Redis it looks at once:");
    for _ in 0..3 {
        enqueue_and_wait(&waking).await?;
    }
    drop(child.stdin.take());
    let ended = child.wait().await?;
    println!("\nThe other process drained and ended with {ended}.");
    Ok(())
}

/// Starts this program as a node, and waits until it says that it is one.
async fn start_node(database: &str, redis: &str) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["node", database, redis])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let said = child.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(said).lines();
    let first = lines
        .next_line()
        .await?
        .context("the other process ended")?;
    println!("{first}");
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            println!("{line}");
        }
    });
    Ok(child)
}

async fn enqueue_and_wait(client: &Client) -> Result<()> {
    // The node's first poll is over then, and the next one is far away.
    sleep(Duration::from_millis(500)).await;
    let id = client.enqueue(Hello.into_job()).await?.id();
    loop {
        let job = client.job(id).await?.context("the job is there")?;
        if let Some(finished) = job.finished_at {
            let took = (finished - job.created_at).num_milliseconds();
            println!("    {} {took} ms after its enqueue", job.state);
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
}
