//! Sends events to all listeners. Each event is encoded once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, broadcast};

use crate::reads::share;

/// The maximum number of events that wait for a slow listener. If more events wait, the listener
/// misses the oldest ones.
const BEHIND: usize = 16;

/// Broadcasts events to the listeners, and counts the listeners of each client.
#[derive(Debug)]
pub(super) struct Feed {
    events: broadcast::Sender<Bytes>,
    /// The last `tick` event, which a new listener gets at once.
    last: Mutex<Option<Bytes>>,
    /// The number of listeners of each client.
    listeners: Mutex<HashMap<Option<IpAddr>, usize>>,
    /// Notified whenever a listener is added.
    came: Notify,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            events: broadcast::Sender::new(BEHIND),
            last: Mutex::default(),
            listeners: Mutex::default(),
            came: Notify::new(),
        }
    }
}

impl Feed {
    /// Adds a listener. Returns `None` if there are `most` listeners already, or if the client
    /// already has the maximum for one client. This maximum does not apply to unknown clients.
    pub(super) fn listen(&self, client: Option<IpAddr>, most: usize) -> Option<Listener> {
        {
            let mut listeners = self.listeners();
            let own = listeners.get(&client).copied().unwrap_or_default();
            let total: usize = listeners.values().sum();
            if total >= most || (client.is_some() && own >= share(most)) {
                return None;
            }
            listeners.insert(client, own + 1);
        }
        self.came.notify_waiters();
        Some(Listener {
            events: self.events.subscribe(),
            last: self.last().clone(),
        })
    }

    /// Removes a listener of this client.
    pub(super) fn leave(&self, client: Option<IpAddr>) {
        let mut listeners = self.listeners();
        match listeners.get_mut(&client) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(listeners.remove(&client)),
        }
        if listeners.is_empty() {
            // Without listeners, no ticks are sent. So the last tick would be out of date when the
            // next listener arrives.
            *self.last() = None;
        }
    }

    pub(super) fn has_listeners(&self) -> bool {
        !self.listeners().is_empty()
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<Option<IpAddr>, usize>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is at least one listener.
    pub(super) async fn listened_to(&self) {
        loop {
            let came = self.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            if self.has_listeners() {
                return;
            }
            came.await;
        }
    }

    /// Sends an event to all listeners.
    pub(super) fn tell(&self, event: &'static str, data: &impl Serialize) {
        if let Some(frame) = frame(event, data) {
            // Sending fails if there is no listener, which is not an error.
            let _ = self.events.send(frame);
        }
    }

    /// Sends an event to all listeners, and keeps the event for new listeners.
    pub(super) fn tell_lasting(&self, event: &'static str, data: &impl Serialize) {
        if let Some(frame) = frame(event, data) {
            *self.last() = Some(frame.clone());
            let _ = self.events.send(frame);
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving end of the event stream, for one listener.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The events that are sent after the listener was added.
    pub(crate) events: broadcast::Receiver<Bytes>,
    /// The last `tick` event before the listener was added. The listener gets it first.
    pub(crate) last: Option<Bytes>,
}

/// Encodes an event as a frame of server-sent events.
pub(crate) fn frame(event: &str, data: &impl Serialize) -> Option<Bytes> {
    match serde_json::to_string(data) {
        Ok(data) => Some(Bytes::from(format!("event: {event}\ndata: {data}\n\n"))),
        Err(error) => {
            tracing::error!(%error, event, "could not encode an event");
            None
        }
    }
}
