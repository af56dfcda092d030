//! What is told to those who listen: each event is written down once, for all of them.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, broadcast};

/// How many events a listener may be behind before it misses some.
const BEHIND: usize = 16;

/// Events for all listeners.
#[derive(Debug)]
pub(super) struct Feed {
    events: broadcast::Sender<Bytes>,
    /// The last tick, for those who come.
    last: Mutex<Option<Bytes>>,
    listeners: AtomicUsize,
    /// Somebody came who was the first.
    came: Notify,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            events: broadcast::Sender::new(BEHIND),
            last: Mutex::default(),
            listeners: AtomicUsize::new(0),
            came: Notify::new(),
        }
    }
}

impl Feed {
    /// Another listener, unless there are `most` already.
    pub(super) fn listen(&self, most: usize) -> Option<Listener> {
        let count = |count| (count < most).then_some(count + 1);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.listeners.fetch_update(set, fetch, count).ok()?;
        self.came.notify_waiters();
        Some(Listener {
            events: self.events.subscribe(),
            last: self.last().clone(),
        })
    }

    /// A listener has gone.
    pub(super) fn leave(&self) {
        if self.listeners.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What was told last is old by the time somebody comes.
            *self.last() = None;
        }
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    /// Waits until somebody listens; at once if somebody does.
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
            // Nobody may be there to hear it.
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

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Bytes>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a listener hears.
#[derive(Debug)]
pub(crate) struct Listener {
    /// What is told from now on.
    pub(crate) events: broadcast::Receiver<Bytes>,
    /// What was told last, to begin with.
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
