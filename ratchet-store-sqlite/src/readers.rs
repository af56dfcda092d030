//! The threads for calls that only read, such as gets, listings and histories.
//!
//! With a write-ahead log, a reader never waits for the writer, and sees every commit that was
//! reported before its call.

use std::sync::Arc;

use ratchet_core::time;
use tokio::sync::{oneshot, watch};

use crate::config::Config;
use crate::connection::{open_reader, wait_until};
use crate::error::Result;
use crate::queue::{RequestQueue, Urgency};
use crate::request::{Request, Session};
use crate::routes::Routes;
use crate::writer::{end_of, spawn};

/// Number of threads that read. There are two, so that one long listing does not delay short reads.
const READERS: usize = 2;

/// A handle to the reading threads. When it is dropped, the threads finish the queued requests and
/// end.
#[derive(Debug)]
pub(crate) struct Readers {
    queue: Arc<RequestQueue<Box<dyn Request>>>,
    ended: watch::Receiver<()>,
}

impl Readers {
    /// Starts the reading threads. Each returned receiver gets a message once its thread has opened
    /// a connection or has failed to open one.
    pub(crate) fn start(config: &Config) -> Result<(Self, Vec<oneshot::Receiver<Result<()>>>)> {
        let queue = Arc::new(RequestQueue::new());
        let (running, ended) = watch::channel(());
        let running = Arc::new(running);
        let readers = Self {
            queue: Arc::clone(&queue),
            ended,
        };
        let mut openings = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let (opened, opening) = oneshot::channel();
            let (config, queue) = (config.clone(), Arc::clone(&queue));
            let running = Arc::clone(&running);
            spawn("ratchet-sqlite-reader", move || {
                wait_until(time::monotonic() + config.busy_timeout);
                match open_reader(&config) {
                    Ok(conn) => {
                        let routes = Routes::new(config.own_queues);
                        let session = Session::new(conn, config.clock, routes, Arc::default());
                        if opened.send(Ok(())).is_ok() {
                            serve(session, &queue);
                        }
                    }
                    Err(failure) => {
                        let _ = opened.send(Err(failure));
                    }
                }
                drop(running);
            })?;
            openings.push(opening);
        }
        Ok((readers, openings))
    }

    pub(crate) fn push(&self, request: Box<dyn Request>) {
        self.queue.push(Urgency::Normal, request);
    }

    /// Tells the threads to finish the queued requests and end.
    pub(crate) fn stop(&self) {
        self.queue.close();
    }

    /// Tells the threads to finish the queued requests and end. Waits until all of them have ended.
    pub(crate) async fn close(&self) {
        self.queue.close();
        end_of(&self.ended).await;
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn serve(mut session: Session, queue: &RequestQueue<Box<dyn Request>>) {
    while let Some(mut request) = queue.wait() {
        if request.is_abandoned() {
            continue;
        }
        wait_until(request.patience());
        // The request runs in one transaction, so that all its statements see the same state.
        let ran = session
            .conn
            .execute_batch("BEGIN")
            .map_err(Into::into)
            .and_then(|()| request.run(&mut session));
        session.end_read();
        match ran {
            Ok(()) => request.answer(),
            Err(failure) => request.fail(failure),
        }
    }
}
