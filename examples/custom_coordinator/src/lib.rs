//! A custom coordinator, which carries wakeups over Redis.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures_util::StreamExt;
use ratchet::store_api::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use ratchet::store_api::metrics::coordinator_outage;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A coordinator that sends and receives wakeups through a channel of a Redis server.
///
/// `notify` passes each wakeup to a background task, which publishes it. A second task receives the
/// wakeups of all publishers. Each task has its own connection, and opens a new one after the
/// connection has failed.
#[derive(Clone, Debug)]
pub struct RedisCoordinator {
    outgoing: mpsc::Sender<Wakeup>,
    incoming: broadcast::Sender<Wakeup>,
    /// The two background tasks. They stop when the last clone of the coordinator is dropped.
    _tasks: Arc<JoinSet<()>>,
}

impl RedisCoordinator {
    /// Capacity of the queue of wakeups to publish, and of the queue of each subscriber. If a queue
    /// is full, wakeups are lost.
    const CAPACITY: usize = 256;
    /// Pause before the next attempt to connect to Redis.
    const PAUSE: Duration = Duration::from_secs(1);
    /// Maximum time that Redis may take to answer.
    const PATIENCE: Duration = Duration::from_secs(3);
    /// Time without a message after which the receiver sends a ping. A network that drops all
    /// packets does not close the connection, so only a missing answer shows the failure.
    const PING: Duration = Duration::from_secs(5);

    /// Connects to the Redis server at `url`, and subscribes to `channel`. Use one channel per
    /// database. Otherwise, programs with different databases wake each other's nodes.
    ///
    /// # Errors
    /// If the URL is not a Redis URL, or the server cannot be reached.
    pub async fn connect(url: &str, channel: &str) -> Result<Self> {
        let redis = redis::Client::open(url)?;
        // A node could start without Redis, because wakeups are only hints. This example fails
        // instead, because it exists to show wakeups.
        let subscription = subscribe(&redis, channel).await?;
        let (outgoing, hints) = mpsc::channel(Self::CAPACITY);
        let incoming = broadcast::Sender::new(Self::CAPACITY);
        let channel = channel.to_owned();
        let mut tasks = JoinSet::new();
        tasks.spawn(publish(redis.clone(), channel.clone(), hints));
        tasks.spawn(receive(redis, channel, subscription, incoming.clone()));
        Ok(Self {
            outgoing,
            incoming,
            _tasks: Arc::new(tasks),
        })
    }
}

#[async_trait]
impl ClusterCoordinator for RedisCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        // If the channel is full, Redis is slow or gone. The hint is dropped, and the next poll
        // finds the job.
        let _ = self.outgoing.try_send(wakeup);
    }

    fn subscribe(&self) -> WakeupStream {
        self.incoming.subscribe().into()
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

/// Publishes each wakeup from `hints` on the Redis channel.
async fn publish(redis: redis::Client, channel: String, mut hints: mpsc::Receiver<Wakeup>) {
    let mut connection = None;
    while let Some(hint) = hints.recv().await {
        if connection.is_none() {
            let connecting = redis.get_multiplexed_async_connection();
            connection = in_time(connecting).await.ok();
        }
        let mut publish = redis::cmd("PUBLISH");
        publish
            .arg(&channel)
            .arg(serde_json::to_string(&hint).unwrap_or_default());
        let sent = match &mut connection {
            Some(connection) => in_time(publish.query_async::<()>(connection)).await.is_ok(),
            None => false,
        };
        if !sent {
            connection = None;
            sleep(RedisCoordinator::PAUSE).await;
        }
    }
}

async fn subscribe(redis: &redis::Client, channel: &str) -> Result<redis::aio::PubSub> {
    let mut subscription = in_time(redis.get_async_pubsub()).await?;
    in_time(subscription.subscribe(channel)).await?;
    Ok(subscription)
}

/// Returns the answer of Redis, or an error if it does not arrive in time.
async fn in_time<T>(asked: impl Future<Output = redis::RedisResult<T>>) -> Result<T> {
    let answer = timeout(RedisCoordinator::PATIENCE, asked).await;
    Ok(answer.context("Redis did not answer in time")??)
}

/// Forwards published wakeups to the subscribers in this process. Subscribes to the Redis channel
/// again after the connection has failed.
async fn receive(
    redis: redis::Client,
    channel: String,
    mut subscription: redis::aio::PubSub,
    incoming: broadcast::Sender<Wakeup>,
) {
    loop {
        let (mut pings, mut messages) = subscription.split();
        loop {
            let message = match timeout(RedisCoordinator::PING, messages.next()).await {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(_) => match in_time(pings.ping::<redis::Value>()).await {
                    Ok(_) => continue,
                    Err(_) => break,
                },
            };
            let text = message.get_payload::<String>().unwrap_or_default();
            // Text that another program published to the channel is ignored.
            if let Ok(hint) = serde_json::from_str::<Wakeup>(&text) {
                // An error only means that there are no subscribers.
                let _ = incoming.send(hint);
            }
        }
        coordinator_outage();
        subscription = loop {
            sleep(RedisCoordinator::PAUSE).await;
            if let Ok(subscription) = subscribe(&redis, &channel).await {
                break subscription;
            }
        };
        // Hints published during the outage are lost, so wake the node for every queue.
        let _ = incoming.send(Wakeup::any());
    }
}
