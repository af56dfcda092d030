//! The only writing thread. It commits the writes of several callers as a group.
//!
//! Every commit costs a flush to the disk, however much it contains. So the thread begins a
//! transaction for the first request in the queue, and runs the other waiting requests in the same
//! one, each inside its own savepoint. No caller gets an answer before the commit has succeeded.
//!
//! A group that contains only heartbeats and renewals is committed without a flush. The flush of
//! the next other group makes it durable too.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::thread;
use std::time::Duration;

use ratchet_core::{StoreErrorKind, time};
use tokio::sync::{oneshot, watch};

use crate::config::Config;
use crate::connection::{open_existing, open_writer, wait_until};
use crate::error::{Failure, Result};
use crate::migrate;
use crate::queue::{RequestQueue, Urgency};
use crate::request::{Request, Session};
use crate::routes::Routes;

/// Maximum number of requests in one transaction.
const GROUP_REQUESTS: usize = 256;
/// Time during which a transaction accepts further requests. It is short, because the first request
/// gets its answer only after the last request has run.
const GROUP_TIME: Duration = Duration::from_millis(4);

type Queue = RequestQueue<Box<dyn Request>>;

/// A handle to the thread for writes. When it is dropped, the thread finishes the queued requests
/// and ends.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Arc<Queue>,
    ended: watch::Receiver<()>,
}

impl std::fmt::Debug for dyn Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

impl Writer {
    /// Starts the thread, which opens the database and applies missing migrations. The receiver
    /// gets the full path of the file, or the failure.
    pub(crate) fn start(
        config: Config,
        appended: Arc<AtomicI64>,
    ) -> Result<(Self, oneshot::Receiver<Result<String>>)> {
        let queue = Arc::new(Queue::new());
        let (opened, opening) = oneshot::channel();
        let (running, ended) = watch::channel(());
        let served = Arc::clone(&queue);
        spawn("ratchet-sqlite-writer", move || {
            let _closing = CloseOnExit(&served);
            wait_until(time::monotonic() + config.busy_timeout);
            match open_session(config, appended) {
                Ok((session, path)) => {
                    if opened.send(Ok(path)).is_ok() {
                        serve(session, &served);
                    }
                }
                Err(failure) => {
                    let _ = opened.send(Err(failure));
                }
            }
            drop(running);
        })?;
        Ok((Self { queue, ended }, opening))
    }

    pub(crate) fn push(&self, urgency: Urgency, request: Box<dyn Request>) {
        self.queue.push(urgency, request);
    }

    /// Tells the thread to finish the queued requests and end.
    pub(crate) fn stop(&self) {
        self.queue.close();
    }

    /// Tells the thread to finish the queued requests and end. Waits until it has ended.
    pub(crate) async fn close(&self) {
        self.queue.close();
        end_of(&self.ended).await;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Waits until a thread has ended. The thread must hold the sender of this channel until its end.
pub(crate) async fn end_of(thread: &watch::Receiver<()>) {
    let mut thread = thread.clone();
    while thread.changed().await.is_ok() {}
}

pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map(|_| ())
        .map_err(|error| {
            let text = format!("cannot start a thread: {error}");
            Failure::new(StoreErrorKind::Unavailable, text)
        })
}

/// A guard that drops all queued requests when the thread ends, even by a panic. The callers of
/// these requests then get an error.
struct CloseOnExit<'a>(&'a Queue);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn open_session(config: Config, appended: Arc<AtomicI64>) -> Result<(Session, String)> {
    if !config.migrate {
        // The schema is checked before anything in the file is changed, including its journal mode.
        migrate::require_up_to_date(open_existing(&config)?.as_ref())?;
    }
    let mut conn = open_writer(&config)?;
    let now = config.clock.now(&conn)?;
    migrate::bring_up_to_date(&mut conn, now)?;
    let path = conn.path().unwrap_or_default().to_owned();
    let routes = Routes::new(config.own_queues);
    Ok((Session::new(conn, config.clock, routes, appended), path))
}

fn serve(mut session: Session, queue: &Queue) {
    while let Some(first) = queue.wait() {
        let mut next = Some(first);
        while let Some(first) = next {
            next = serve_group(&mut session, first, queue);
        }
    }
    // Truncates the log, so that the next process to open the file need not read the log. If other
    // processes still use the file, the checkpoint does only as much as is possible without waiting
    // for them.
    wait_until(time::monotonic());
    if let Err(error) = session
        .conn
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    {
        tracing::debug!(%error, "the last checkpoint of the store failed");
    }
}

/// Handles `first` and other queued requests in one transaction. Uses no transaction if reads are
/// enough to answer the requests. If a request was taken from the queue but needs another
/// transaction, returns this request.
fn serve_group(
    session: &mut Session,
    first: Box<dyn Request>,
    queue: &Queue,
) -> Option<Box<dyn Request>> {
    let first = begin(session, first, queue)?;
    let (is_volatile, mut next) = (first.is_volatile(), None);
    let began = time::monotonic();
    let mut group = vec![first];
    while group.len() < GROUP_REQUESTS && time::monotonic() - began < GROUP_TIME {
        let Some(request) = queue.poll() else {
            break;
        };
        if is_volatile && !request.is_volatile() {
            next = Some(request);
            break;
        }
        match run_in_savepoint(session, request) {
            Joined::Done(request) => group.push(request),
            Joined::Alone => {}
            Joined::Broken(failure) => {
                fail_all(session, group, &failure);
                return None;
            }
        }
    }
    match commit(session) {
        Ok(()) => group.into_iter().for_each(Request::answer),
        Err(failure) => fail_all(session, group, &failure),
    }
    next
}

/// Begins a transaction for the first request that needs one. Runs this request and returns it.
/// Returns `None` if the queue becomes empty before any request needs a transaction.
fn begin(
    session: &mut Session,
    first: Box<dyn Request>,
    queue: &Queue,
) -> Option<Box<dyn Request>> {
    let mut next = Some(first);
    while let Some(mut request) = next.take() {
        wait_until(request.patience());
        if !request.is_abandoned() && !request.try_reading(session) {
            let ran = session
                .flush(!request.is_volatile())
                .and_then(|()| execute(session, "BEGIN IMMEDIATE"))
                .and_then(|()| request.run(session));
            match ran {
                Ok(()) => return Some(request),
                Err(failure) => {
                    session.roll_back();
                    request.fail(failure);
                }
            }
        }
        next = queue.poll();
    }
    None
}

/// The outcome of a request that was added to a transaction.
enum Joined {
    /// The request ran and is part of the transaction.
    Done(Box<dyn Request>),
    /// The request failed or was abandoned. Its changes are undone, and the transaction can
    /// continue.
    Alone,
    /// The request failed, and the transaction cannot continue.
    Broken(Failure),
}

fn run_in_savepoint(session: &mut Session, mut request: Box<dyn Request>) -> Joined {
    if request.is_abandoned() {
        return Joined::Alone;
    }
    if let Err(failure) = execute(session, "SAVEPOINT request") {
        request.fail(failure.clone());
        return Joined::Broken(failure);
    }
    let ran = request
        .run(session)
        .and_then(|()| execute(session, "RELEASE request"));
    let Err(failure) = ran else {
        return Joined::Done(request);
    };
    request.fail(failure.clone());
    // After a full disk or an I/O error, SQLite may already have rolled back the whole transaction.
    let undone = if session.conn.is_autocommit() {
        Err(failure)
    } else {
        session.roll_back_to_savepoint()
    };
    match undone {
        Ok(()) => Joined::Alone,
        Err(failure) => Joined::Broken(failure),
    }
}

fn commit(session: &Session) -> Result<()> {
    execute(session, "COMMIT")
}

fn fail_all(session: &mut Session, group: Vec<Box<dyn Request>>, failure: &Failure) {
    session.roll_back();
    for request in group {
        request.fail(failure.clone());
    }
}

fn execute(session: &Session, sql: &str) -> Result<()> {
    session.conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Call, Work};

    fn read_level(work: &mut Work<'_>) -> Result<i64> {
        let level = work.conn.driver();
        Ok(level.query_row("PRAGMA synchronous", [], |row| row.get(0))?)
    }

    #[test]
    fn only_groups_of_heartbeats_and_renewals_are_committed_without_a_flush() {
        for (configured, full) in [("FULL", 2), ("NORMAL", 1)] {
            let conn = rusqlite::Connection::open_in_memory().unwrap();
            conn.execute_batch(&format!("PRAGMA synchronous = {configured}"))
                .unwrap();
            let clock = crate::connection::Clock::Database;
            let mut session = Session::new(conn, clock, Routes::new(16), Arc::default());
            for requests in [[true, true], [true, false], [false, true], [false, false]] {
                let queue = Queue::new();
                let mut answers = Vec::new();
                for volatile in requests {
                    let patience = time::monotonic() + Duration::from_secs(60);
                    let (call, answer) = Call::new(patience, read_level);
                    let call = if volatile { call.volatile() } else { call };
                    queue.push(Urgency::Normal, Box::new(call));
                    answers.push(answer);
                }
                let mut next = queue.poll();
                while let Some(first) = next {
                    next = serve_group(&mut session, first, &queue);
                }
                let found = answers.iter_mut().map(|answer| answer.try_recv().unwrap());
                let found: Vec<i64> = found.map(Result::unwrap).collect();
                // A volatile request may join a group that is flushed. Other requests must never
                // join a group that is not flushed.
                let is_right = |(volatile, level): (&bool, &i64)| match volatile {
                    true => *level == 1 || (!requests[0] && *level == full),
                    false => *level == full,
                };
                assert!(requests.iter().zip(&found).all(is_right), "{found:?}");
            }
        }
    }

    #[test]
    fn callers_hear_of_a_thread_that_is_gone() {
        let queue = Queue::new();
        let (call, mut answer) = Call::new(time::monotonic(), |_| Ok(()));
        queue.push(Urgency::Normal, Box::new(call));
        drop(CloseOnExit(&queue));
        assert_eq!(
            answer.try_recv().map_err(|error| error.to_string()).err(),
            Some("channel closed".to_owned())
        );
    }
}
