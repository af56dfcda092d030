//! The events for listeners: each is encoded once, for all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, broadcast};

use crate::reads::share;

/// How many events a listener may be behind before it misses some.
const BEHIND: usize = 16;

/// Events for all listeners.
#[derive(Debug)]
pub(super) struct Feed {
    events: broadcast::Sender<Bytes>,
    /// The last tick, for those who come.
    last: Mutex<Option<Bytes>>,
    /// How many listeners each client has.
    listeners: Mutex<HashMap<Option<IpAddr>, usize>>,
    /// Notes the first listener.
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
    /// Adds a listener, unless there are `most` already or the client has its share of them.
    /// Requests of unknown clients have no share.
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
            // The last event is old by the time a listener comes.
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

    /// Waits until there is a listener; returns at once if there is one.
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

    /// Tells everybody.
    pub(super) fn tell(&self, event: &'static str, data: &impl Serialize) {
        if let Some(frame) = frame(event, data) {
            // There may be no listener.
            let _ = self.events.send(frame);
        }
    }

    /// Tells everybody, and those who come later.
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

/// The updates of one listener.
#[derive(Debug)]
pub(crate) struct Listener {
    /// The events from now on.
    pub(crate) events: broadcast::Receiver<Bytes>,
    /// The last updates, sent to a new listener first.
    pub(crate) last: Option<Bytes>,
}

/// An event as it is sent.
pub(crate) fn frame(event: &str, data: &impl Serialize) -> Option<Bytes> {
    match serde_json::to_string(data) {
        Ok(data) => Some(Bytes::from(format!("event: {event}\ndata: {data}\n\n"))),
        Err(error) => {
            tracing::error!(%error, event, "an event cannot be written down");
            None
        }
    }
}
