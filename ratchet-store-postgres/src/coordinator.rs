//! Wakeups over LISTEN and NOTIFY.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use ratchet_sql::Failure;
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use sqlx::{Acquire, Connection};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::{Classified, classify};

/// Carries wakeups between nodes and clients that use the same schema. The wakeups travel through
/// the database.
///
/// The coordinator uses a separate connection for `LISTEN` and `NOTIFY`. If several wakeups within
/// a few milliseconds have the same queue, addressee and sender, it sends only one of them. It does
/// so because PostgreSQL runs commits with notifications one at a time in the whole server.
///
/// Regular pings show whether the connection still works. After a loss, the coordinator reconnects
/// with a backoff of 200 ms to 1 s. Then every subscription gets a wakeup for all queues.
///
/// Through a pooler that shares sessions between clients, notifications do not arrive, although no
/// call fails. So the coordinator tests each new connection: it sends a notification from another
/// connection, and logs a warning if the notification does not arrive.
///
/// The first send or subscription opens the connection.
///
/// ```
/// # async fn example(store: ratchet_store_postgres::PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_core::store::Store as _;
///
/// let coordinator = store.coordinator().ok_or("wakeups are turned off")?;
/// let mut wakeups = coordinator.subscribe();
/// println!("{:?}", wakeups.next().await);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PostgresCoordinator {
    options: PgConnectOptions,
    channel: String,
    outgoing: mpsc::Sender<Wakeup>,
    /// Receiving end of the channel of unsent wakeups. The task takes it when the task starts.
    unsent: Mutex<Option<mpsc::Receiver<Wakeup>>>,
    incoming: broadcast::Sender<Wakeup>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Maximum number of wakeups that wait to be sent. Further wakeups are dropped.
const UNSENT: usize = 256;
/// Maximum number of unread wakeups of a subscriber. If there are more, the subscriber gets one
/// wakeup for all queues instead.
const UNREAD: usize = 1_024;
/// Pause after each send. Wakeups that arrive during the pause are sent together.
const WINDOW: Duration = Duration::from_millis(3);
/// Interval between pings on an idle connection.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Timeout for a send or a ping.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for connecting. If the host does not answer, the kernel repeats the connection request
/// after 1 s and after 3 s. The timeout is long enough for both. So once the host is back, the next
/// request reaches it within 2 s.
const CONNECTING: Duration = Duration::from_millis(3_300);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl PostgresCoordinator {
    pub(crate) fn new(options: PgConnectOptions, schema: &str) -> Self {
        let (outgoing, unsent) = mpsc::channel(UNSENT);
        Self {
            options,
            channel: Self::channel(schema),
            outgoing,
            unsent: Mutex::new(Some(unsent)),
            incoming: broadcast::Sender::new(UNREAD),
            task: Mutex::new(None),
        }
    }

    /// Returns the name of a schema's notification channel. The name is at most 63 bytes long,
    /// because PostgreSQL truncates longer names.
    pub(crate) fn channel(schema: &str) -> String {
        let plain = format!("ratchet:{schema}");
        if plain.len() <= 63 {
            return plain;
        }
        let digest = Sha256::digest(schema.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("ratchet#{}", &hex[..48])
    }

    fn start(&self) {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unsent) = unsent.take() {
            let transport = Transport {
                options: self.options.clone(),
                channel: self.channel.clone(),
                unsent,
                incoming: self.incoming.clone(),
            };
            let task = tokio::spawn(transport.run());
            *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        }
    }

    /// Closes the connection. Afterwards, the coordinator sends and receives no wakeups.
    pub(crate) fn close(&self) {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        drop(unsent.take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = &*task {
            task.abort();
        }
    }
}

impl Drop for PostgresCoordinator {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl ClusterCoordinator for PostgresCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        self.start();
        // If the queue is full or the store is closed, the wakeup is lost, and polling finds the
        // jobs.
        let _ = self.outgoing.try_send(wakeup);
    }

    fn subscribe(&self) -> WakeupStream {
        self.start();
        self.incoming.subscribe().into()
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

/// Returns the payload of the notification for a wakeup. A queue's name has at most 128 bytes, so
/// the payload is far shorter than the limit of 8,000 bytes, even if some bytes are escaped.
pub(crate) fn payload(wakeup: &Wakeup) -> String {
    serde_json::to_string(wakeup).unwrap_or_default()
}

/// Parses the payload of a notification. Returns `None` if the payload is not a wakeup.
fn wakeup(payload: &str) -> Option<Wakeup> {
    serde_json::from_str(payload).ok()
}

/// The task that owns the connection for wakeups, with its state.
struct Transport {
    options: PgConnectOptions,
    channel: String,
    unsent: mpsc::Receiver<Wakeup>,
    incoming: broadcast::Sender<Wakeup>,
}

impl Transport {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut lost: Option<PgListener> = None;
        let mut failures = 0_u64;
        loop {
            match self.connect(&mut lost).await {
                Ok(mut listener) => {
                    if failures > 0 {
                        tracing::info!(
                            failures,
                            "opened a new connection for wakeups after \
                             earlier attempts failed"
                        );
                        failures = 0;
                    }
                    if lost.take().is_some() {
                        // An error means that there are no subscribers, which is fine.
                        let _ = self.incoming.send(Wakeup::any());
                    }
                    pause = FIRST_PAUSE;
                    if self.carry(&mut listener).await.is_ok() {
                        return;
                    }
                    ratchet_core::metrics::coordinator_outage();
                    tracing::warn!("the connection for wakeups was lost");
                    lost = Some(listener);
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "could not open the connection for wakeups; \
                            retrying");
                    }
                    failures += 1;
                }
            }
            let jitter = fastrand::f64() / 2.0 + 0.5;
            tokio::time::sleep(pause.mul_f64(jitter)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Opens a connection and listens on the channel. If the old listener was lost, closes its
    /// connection first.
    async fn connect(&self, lost: &mut Option<PgListener>) -> Result<PgListener, Failure> {
        let connecting = async {
            if let Some(lost) = lost {
                self.hang_up(lost).await?;
            }
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(CONNECTING)
                .connect_lazy_with(self.options.clone());
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.eager_reconnect(false);
            listener.listen(&self.channel).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        match tokio::time::timeout(CONNECTING, connecting).await {
            Ok(listener) => listener.classified(),
            Err(_) => Err(classify(&sqlx::Error::PoolTimedOut)),
        }
    }

    /// Closes the connection of a lost listener. If such a listener were simply dropped, the driver
    /// would send `UNLISTEN` and wait for the answer. On a network that is down, that wait would
    /// never end and keep the connection open. So this function swaps a new connection into the
    /// listener and drops the lost one.
    async fn hang_up(&self, lost: &mut PgListener) -> Result<(), sqlx::Error> {
        let other = PgConnection::connect_with(&self.options).await?;
        let dead = std::mem::replace(lost.acquire().await?, other);
        drop(dead);
        Ok(())
    }

    /// Sends and receives wakeups until all senders are dropped, and then returns `Ok`. Returns an
    /// error if the connection is lost.
    async fn carry(&mut self, listener: &mut PgListener) -> Result<(), ()> {
        let mut waiting: HashSet<String> = HashSet::new();
        let mut sendable_from = ratchet_core::time::monotonic();
        let (mut called, mut heard, mut hear_until) = (false, false, None);
        // This text is not a valid wakeup, so other nodes ignore it.
        let call = format!("trial {}", Uuid::new_v4());
        let calling = call_from_elsewhere(self.options.clone(), self.channel.clone(), &call);
        tokio::pin!(calling);
        loop {
            tokio::select! {
                received = listener.try_recv() => match received {
                    Ok(Some(notification)) => {
                        if let Some(wakeup) = wakeup(notification.payload()) {
                            let _ = self.incoming.send(wakeup);
                        } else if notification.payload() == call {
                            (heard, hear_until) = (true, None);
                        }
                    }
                    Ok(None) | Err(_) => return Err(()),
                },
                unsent = self.unsent.recv() => match unsent {
                    Some(wakeup) => {
                        waiting.insert(payload(&wakeup));
                    }
                    None => return Ok(()),
                },
                () = tokio::time::sleep_until(sendable_from), if !waiting.is_empty() => {
                    self.send(listener, waiting.drain().collect()).await?;
                    sendable_from = ratchet_core::time::monotonic() + WINDOW;
                }
                result = &mut calling, if !called => {
                    called = true;
                    match result {
                        Ok(()) if heard => {}
                        Ok(()) => hear_until = Some(ratchet_core::time::monotonic() + PATIENCE),
                        // If no second connection can be opened, the test is skipped.
                        Err(error) => {
                            tracing::debug!(%error, "could not test whether the connection for wakeups receives notifications");
                        }
                    }
                }
                () = sleep_until(hear_until), if hear_until.is_some() => {
                    hear_until = None;
                    tracing::warn!(
                        channel = self.channel,
                        "the connection for wakeups receives no notifications; it may lead \
                         through a pooler. Set Builder::direct to the URL of the database itself, \
                         or turn wakeups off with Builder::wakeups(false). Until then, nodes find \
                         jobs of other processes only by polling"
                    );
                }
                () = tokio::time::sleep(SIGN_OF_LIFE) => self.send(listener, Vec::new()).await?,
            }
        }
    }

    /// Sends one notification for each of these payloads. Without payloads, the statement only
    /// tests the connection.
    async fn send(&self, listener: &mut PgListener, payloads: Vec<String>) -> Result<(), ()> {
        let notify = sqlx::query(
            "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS wakeup (payload)",
        );
        let notify = notify.bind(&self.channel).bind(payloads);
        let sending = notify.fetch_all(listener);
        match tokio::time::timeout(PATIENCE, sending).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(()),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Sends the notification `call` from a second connection, to test whether the first connection
/// receives notifications. The first connection cannot test itself: through a pooler, its `LISTEN`
/// and its `NOTIFY` may run in the same session. Then it receives its own notification, but not
/// those of other connections.
async fn call_from_elsewhere(
    options: PgConnectOptions,
    channel: String,
    call: &str,
) -> Result<(), Failure> {
    let calling = async {
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(channel)
            .bind(call)
            .execute(&mut connection)
            .await?;
        connection.close().await
    };
    match tokio::time::timeout(PATIENCE, calling).await {
        Ok(called) => called.classified(),
        Err(_) => Err(classify(&sqlx::Error::PoolTimedOut)),
    }
}

#[cfg(test)]
mod tests {
    use ratchet_core::{Name, NodeId};

    use super::*;

    #[test]
    fn wakeups_round_trip() {
        for queue in ["default", "it's \"quoted\"; \\", &"\u{1f980}".repeat(32)] {
            let queue = Name::new("queue", queue).unwrap();
            let plain = Wakeup::queue(queue);
            let sent = payload(&plain);
            assert!(sent.len() < 1_000);
            assert_eq!(wakeup(&sent), Some(plain.clone()));
            let signed = plain.from_node(NodeId::new()).to(NodeId::new());
            assert_eq!(wakeup(&payload(&signed)), Some(signed));
        }
        assert_eq!(wakeup(&payload(&Wakeup::any())), Some(Wakeup::any()));
        assert_eq!(wakeup("{\"queue\": \"\"}"), None);
        assert_eq!(wakeup("trial 0b1c"), None);
    }

    #[test]
    fn every_schema_has_a_channel_of_its_own() {
        let long = |last: char| format!("{}{last}", "x".repeat(62));
        let names = ["a".to_owned(), "A".to_owned(), long('a'), long('b')];
        let channels: HashSet<String> = names
            .iter()
            .map(|schema| PostgresCoordinator::channel(schema))
            .collect();
        assert_eq!(channels.len(), names.len());
        assert!(channels.iter().all(|channel| channel.len() <= 63));
    }
}
