//! The queue of requests to the store's threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

/// The priority of a request in the [`RequestQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Priority of heartbeats and locks. They overtake other calls, so that a long queue does not
    /// make a node look dead.
    Urgent,
    /// Priority of all other calls.
    Normal,
}

/// A queue of requests in which urgent requests overtake the others.
#[derive(Debug)]
pub(crate) struct RequestQueue<R> {
    state: Mutex<State<R>>,
    ready: Condvar,
}

#[derive(Debug)]
struct State<R> {
    urgent: VecDeque<R>,
    normal: VecDeque<R>,
    closed: bool,
}

impl<R> State<R> {
    fn take(&mut self) -> Option<R> {
        self.urgent.pop_front().or_else(|| self.normal.pop_front())
    }
}

impl<R> RequestQueue<R> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                urgent: VecDeque::new(),
                normal: VecDeque::new(),
                closed: false,
            }),
            ready: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Adds a request to the queue. Drops the request if the queue is closed.
    pub(crate) fn push(&self, urgency: Urgency, request: R) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        match urgency {
            Urgency::Urgent => state.urgent.push_back(request),
            Urgency::Normal => state.normal.push_back(request),
        }
        drop(state);
        self.ready.notify_one();
    }

    /// Waits for the next request. Returns `None` once the queue is closed and empty.
    pub(crate) fn wait(&self) -> Option<R> {
        let mut state = self.lock();
        loop {
            if let Some(request) = state.take() {
                return Some(request);
            }
            if state.closed {
                return None;
            }
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(|broken| broken.into_inner());
        }
    }

    /// Returns the next request without waiting, or `None` if the queue is empty.
    pub(crate) fn poll(&self) -> Option<R> {
        self.lock().take()
    }

    /// Closes the queue. It accepts no more requests, and the requests already in it are still
    /// handled.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    /// Closes the queue and drops all requests in it.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.closed = true;
        let dropped = (
            std::mem::take(&mut state.urgent),
            std::mem::take(&mut state.normal),
        );
        drop(state);
        drop(dropped);
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_requests_overtake() {
        let queue = RequestQueue::new();
        queue.push(Urgency::Normal, 1);
        queue.push(Urgency::Urgent, 2);
        queue.push(Urgency::Normal, 3);
        queue.push(Urgency::Urgent, 4);
        let order: Vec<i32> = std::iter::from_fn(|| queue.poll()).collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }

    #[test]
    fn closing_serves_what_is_queued_and_nothing_else() {
        let queue = RequestQueue::new();
        queue.push(Urgency::Normal, 1);
        queue.close();
        queue.push(Urgency::Normal, 2);
        assert_eq!((queue.wait(), queue.wait()), (Some(1), None));
    }

    #[test]
    fn abandoning_drops_what_is_queued() {
        let queue = RequestQueue::new();
        queue.push(Urgency::Normal, 1);
        queue.abandon();
        assert_eq!(queue.wait(), None);
    }
}
