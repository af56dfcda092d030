//! Wakeups over a change stream.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use mongodb::Cursor;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, Timestamp, doc};
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use ratchet_core::{InvalidInput, Name};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::clients::Clients;
use crate::connection::Side;
use crate::error::{Failure, Result, UNAUTHORIZED};
use crate::row;

/// Carries wakeups between nodes and clients that use the same collections. The wakeups travel
/// through the database.
///
/// A small collection has one document for each queue. To send a wakeup, the coordinator writes to
/// the document of the wakeup's queue. If several wakeups within a few milliseconds have the same
/// queue, addressee and sender, the coordinator writes only one of them. To receive wakeups, the
/// coordinator reads a change stream on the collection.
///
/// If the stream is lost, the coordinator reopens the stream after a pause of 200 ms, which grows
/// to at most 30 s. The new stream continues at the position where the old stream ended. If that
/// fails, it begins at the current time. After a reopening, every subscription gets a wakeup for
/// all queues. If the client belongs to the application, the coordinator does not notice an outage
/// that the stream survives. Such an outage loses no wakeup, so the subscriptions need no wakeup
/// for all queues and get none.
///
/// The first subscription opens the stream.
///
/// ```
/// # async fn example(store: ratchet_store_mongo::MongoStore) -> Result<(), Box<dyn std::error::Error>> {
/// use ratchet_core::store::Store as _;
///
/// let coordinator = store.coordinator().ok_or("wakeups are turned off")?;
/// let mut wakeups = coordinator.subscribe();
/// println!("{:?}", wakeups.next().await);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MongoCoordinator {
    clients: Arc<Clients>,
    outgoing: mpsc::Sender<Wakeup>,
    /// Receiving end of the channel of unsent wakeups. The sending task takes it when the task
    /// starts.
    unsent: Mutex<Option<mpsc::Receiver<Wakeup>>>,
    incoming: broadcast::Sender<Wakeup>,
    tasks: Mutex<Tasks>,
}

#[derive(Debug, Default)]
struct Tasks {
    sender: Option<JoinHandle<()>>,
    receiver: Option<JoinHandle<()>>,
    closed: bool,
}

/// Change stream, as a plain cursor. The driver's own change stream type is not used, because it
/// resumes after an outage without reporting the outage.
pub(crate) type Stream = Cursor<RawDocumentBuf>;

/// Maximum number of wakeups that wait to be sent. Further wakeups are dropped.
const UNSENT: usize = 256;
/// Maximum number of unread wakeups of a subscriber. If there are more, the subscriber gets one
/// wakeup for all queues instead.
const UNREAD: usize = 1_024;
/// Pause after each send. Wakeups that arrive during the pause are sent together.
const WINDOW: Duration = Duration::from_millis(3);
/// Timeout for sending a wakeup, and for opening the stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of sends at the same time. It is low because sends share a few connections with
/// heartbeats and locks.
const SENDS: usize = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Id of the document for wakeups that concern all queues. No queue has an empty name, so no queue
/// has this id.
const EVERYWHERE: &str = "";

impl MongoCoordinator {
    pub(crate) fn new(clients: &Arc<Clients>) -> Self {
        let (outgoing, unsent) = mpsc::channel(UNSENT);
        Self {
            clients: Arc::clone(clients),
            outgoing,
            unsent: Mutex::new(Some(unsent)),
            incoming: broadcast::Sender::new(UNREAD),
            tasks: Mutex::default(),
        }
    }

    /// Stops both tasks. Afterwards, the coordinator sends and receives no wakeups.
    pub(crate) fn close(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.closed = true;
        let running = [tasks.sender.take(), tasks.receiver.take()];
        for task in running.into_iter().flatten() {
            task.abort();
        }
    }
}

impl Drop for MongoCoordinator {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl ClusterCoordinator for MongoCoordinator {
    async fn notify(&self, wakeup: Wakeup) {
        {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
            if !tasks.closed
                && let Some(unsent) = unsent.take()
            {
                tasks.sender = Some(tokio::spawn(send_all(Arc::clone(&self.clients), unsent)));
            }
        }
        // If the channel is full or the store closed, the wakeup is dropped, and polling finds the
        // work.
        let _ = self.outgoing.try_send(wakeup);
    }

    fn subscribe(&self) -> WakeupStream {
        let stream = self.incoming.subscribe().into();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.closed && tasks.receiver.is_none() {
            let receiver = receive_all(Arc::clone(&self.clients), self.incoming.clone());
            tasks.receiver = Some(tokio::spawn(receiver));
        }
        stream
    }

    fn reaches_all_nodes(&self) -> bool {
        true
    }
}

/// Sends wakeups until the channel is closed.
async fn send_all(clients: Arc<Clients>, mut unsent: mpsc::Receiver<Wakeup>) {
    while let Some(first) = unsent.recv().await {
        let mut waiting = HashSet::from([first]);
        while let Ok(next) = unsent.try_recv() {
            waiting.insert(next);
        }
        let clients = &clients.current().live;
        let send = async |wakeup| match timeout(PATIENCE, send(clients, &wakeup)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "could not send a wakeup"),
            Err(_) => tracing::debug!("could not send a wakeup in time"),
        };
        stream::iter(waiting).for_each_concurrent(SENDS, send).await;
        sleep(WINDOW).await;
    }
}

/// Writes a wakeup to the document of its queue. Each write gives the field `mark` a new value, so
/// the change stream reports every write as a change. The write waits for a majority, because the
/// stream delivers only changes that a majority has stored.
async fn send(side: &Side, wakeup: &Wakeup) -> Result<()> {
    let row = document(wakeup);
    let all_of_queue = doc! { "_id": row.get("_id") };
    side.wakeups
        .replace_one(all_of_queue, RawDocumentBuf::try_from(&row)?)
        .upsert(true)
        .await?;
    Ok(())
}

/// Passes wakeups from the stream to the subscribers. Opens the stream again whenever it ends.
async fn receive_all(clients: Arc<Clients>, incoming: broadcast::Sender<Wakeup>) {
    let mut pause = FIRST_PAUSE;
    let mut forbidden = false;
    let mut place: Option<Document> = None;
    let mut followed = false;
    loop {
        let pair = clients.current();
        let mut outages = pair.outages.clone();
        outages.forget();
        match open(&pair.live, place.take()).await {
            Ok(mut stream) => {
                if followed {
                    // The send fails only if there are no subscribers.
                    let _ = incoming.send(Wakeup::any());
                }
                followed = true;
                pause = FIRST_PAUSE;
                let error = tokio::select! {
                    error = follow(&mut stream, &incoming, &mut place) => error,
                    () = outages.next() => unavailable("the client lost its connections"),
                };
                ratchet_core::metrics::coordinator_outage();
                tracing::debug!(%error, "the change stream for wakeups ended");
            }
            Err(error) if error.code == UNAUTHORIZED && !error.user_is_gone && !forbidden => {
                forbidden = true;
                tracing::warn!(
                    %error,
                    "the user is not allowed to open a change stream, so nodes get no wakeups and \
                     find jobs only by polling"
                );
            }
            Err(error) => {
                tracing::debug!(%error, "could not open the change stream for wakeups");
            }
        }
        let jitter = fastrand::f64() / 2.0 + 0.5;
        sleep(pause.mul_f64(jitter)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Opens the stream at the position `place`, or at the current time if `place` is `None`. In both
/// cases the stream includes wakeups that are sent during the opening.
pub(crate) async fn open(side: &Side, place: Option<Document>) -> Result<Stream> {
    let opening = async {
        let from = match place {
            Some(place) => doc! { "resumeAfter": place },
            None => doc! { "startAtOperationTime": this_moment(side).await? },
        };
        let changes = doc! { "$match": { "operationType": { "$in": ["insert", "replace"] } } };
        let stages = [doc! { "$changeStream": from }, changes];
        let watch = side.wakeups.aggregate(stages);
        Ok(watch.with_type::<RawDocumentBuf>().await?)
    };
    match timeout(PATIENCE, opening).await {
        Ok(stream) => stream,
        Err(_) => Err(Failure::new(
            ratchet_core::StoreErrorKind::Timeout,
            "opening the change stream timed out",
        )),
    }
}

async fn this_moment(side: &Side) -> Result<Timestamp> {
    let reply: Document = side.database.run_command(doc! { "ping": 1 }).await?;
    let time = reply.get_timestamp("operationTime");
    Ok(time.map_err(|_| InvalidInput::new("operationTime", "is missing"))?)
}

fn unavailable(text: &str) -> Failure {
    Failure::new(ratchet_core::StoreErrorKind::Unavailable, text)
}

/// Passes the wakeups of the stream on to the subscribers until the stream ends. Returns the reason
/// for the end. Stores the stream's position in `place` after each event.
async fn follow(
    stream: &mut Stream,
    incoming: &broadcast::Sender<Wakeup>,
    place: &mut Option<Document>,
) -> Failure {
    loop {
        match stream.advance().await {
            Ok(true) => {}
            Ok(false) => {
                return unavailable("the server closed the stream");
            }
            Err(error) => return error.into(),
        }
        let event = stream.current();
        let token = event.get_document("_id").ok();
        *place = token.and_then(|token| Document::try_from(token).ok());
        if let Ok(Ok(wakeup)) = event.get_document("fullDocument").map(wakeup) {
            let _ = incoming.send(wakeup);
        }
    }
}

/// Returns the document in which a wakeup is stored.
fn document(wakeup: &Wakeup) -> Document {
    let queue = wakeup.queue.as_ref().map_or(EVERYWHERE, Name::as_str);
    let mut row = doc! { "_id": queue, "mark": ObjectId::new() };
    for (field, node) in [("source", wakeup.source), ("to", wakeup.to)] {
        if let Some(node) = node {
            row.insert(field, row::id(node));
        }
    }
    if let Some(leads_for) = wakeup.leads_for_ms {
        row.insert("leads_for_ms", i64::from(leads_for));
    }
    row
}

/// Reads a wakeup from its document.
fn wakeup(row: &RawDocument) -> Result<Wakeup, InvalidInput> {
    let queue = row::text(row, "_id")?.unwrap_or(EVERYWHERE);
    let mut wakeup = if queue == EVERYWHERE {
        Wakeup::any()
    } else {
        Wakeup::queue(Name::new("queue", queue)?)
    };
    wakeup.source = row::node_id(row, "source")?;
    wakeup.to = row::node_id(row, "to")?;
    let leads_for = row::optional_int(row, "leads_for_ms")?;
    wakeup.leads_for_ms = leads_for.and_then(|leads_for| leads_for.try_into().ok());
    Ok(wakeup)
}

#[cfg(test)]
mod tests {
    use ratchet_core::NodeId;

    use super::*;

    #[test]
    fn wakeups_are_read_as_they_were_written() {
        let node = NodeId::new();
        let raw = |row: Document| RawDocumentBuf::try_from(&row).unwrap();
        let queue = Name::new("queue", "größe").unwrap();
        let addressed = Wakeup::queue(queue).from_node(node).to(NodeId::new());
        let beacon = Wakeup::beacon(node, Duration::from_secs(8));
        for sent in [addressed, beacon, Wakeup::any()] {
            assert_eq!(wakeup(&raw(document(&sent))), Ok(sent));
        }
        assert!(wakeup(&raw(doc! { "_id": 7 })).is_err());
    }
}
