//! Requests of callers to the store's threads.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ratchet_core::StoreErrorKind;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::Clock;
use crate::error::{Failure, Result};
use crate::fair_limits;
use crate::links::{self, Come};
use crate::routes::Routes;
use crate::statements::Connection;

/// The level of the setting `synchronous` at which a commit does not wait until it is durable.
const NORMAL: i64 = 1;

/// The connection of one thread, and the data that the thread keeps between requests.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conn: rusqlite::Connection,
    clock: Clock,
    routes: Routes,
    /// The configured level of the setting `synchronous`, and the current level. `None` until
    /// [`flush`](Self::flush) first reads the level.
    synchronous: Option<(i64, i64)>,
    /// Number of jobs that requests on this connection have inserted. Jobs whose insert was rolled
    /// back count too.
    appended: Arc<AtomicI64>,
}

/// The context in which a request runs.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    pub(crate) conn: Connection<'a>,
    pub(crate) routes: &'a mut Routes,
    /// Time of the database when this request began to run, in milliseconds since 1970.
    pub(crate) now: i64,
    /// Ended jobs and changed batches of this request, on which other jobs may depend.
    pub(crate) come: RefCell<Come>,
    /// Routes and fair keys whose places this request may have freed.
    pub(crate) freed: RefCell<BTreeSet<(i64, String)>>,
    /// Number of jobs that this request has inserted.
    pub(crate) appended: i64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(conn: Connection<'a>, routes: &'a mut Routes, now: i64) -> Self {
        routes.begin();
        Self {
            conn,
            routes,
            now,
            come: RefCell::default(),
            freed: RefCell::default(),
            appended: 0,
        }
    }

    /// Applies the consequences of the jobs that ended and of the batches that changed, and stores
    /// the freed entries of fair keys. Must run at the end of the request.
    pub(crate) fn finish(&mut self) -> Result<()> {
        links::follow(self)?;
        fair_limits::store_freed(self)
    }

    /// Notes that a fair key may have a free place in the queue of a route. Does nothing without a
    /// key.
    pub(crate) fn note_place(&self, route: i64, key: Option<String>) {
        if let Some(key) = key {
            self.freed.borrow_mut().insert((route, key));
        }
    }
}

impl Session {
    pub(crate) fn new(
        conn: rusqlite::Connection,
        clock: Clock,
        routes: Routes,
        appended: Arc<AtomicI64>,
    ) -> Self {
        Self {
            conn,
            clock,
            routes,
            synchronous: None,
            appended,
        }
    }

    /// Sets whether the next transaction is flushed to the disk, provided that the configuration
    /// flushes commits. Must be called outside of a transaction.
    pub(crate) fn flush(&mut self, flush: bool) -> Result<()> {
        let level = || {
            self.conn
                .query_row("PRAGMA synchronous", [], |row| row.get(0))
        };
        let (configured, current) = match self.synchronous {
            Some(levels) => levels,
            None => level().map(|level| (level, level))?,
        };
        let wanted = match flush {
            true => configured,
            false => configured.min(NORMAL),
        };
        if wanted != current {
            self.conn.pragma_update(None, "synchronous", wanted)?;
        }
        self.synchronous = Some((configured, wanted));
        Ok(())
    }

    /// Runs `step` at the current time. Then [finishes](Work::finish) the request. A panic in `step`
    /// becomes a failure.
    pub(crate) fn run<T>(&mut self, step: impl FnOnce(&mut Work<'_>) -> Result<T>) -> Result<T> {
        let now = self.clock.now(&self.conn)?;
        let mut work = Work::new(Connection::new(&self.conn), &mut self.routes, now);
        let step = || {
            let answer = step(&mut work)?;
            work.finish()?;
            // The jobs are counted before the commit. Otherwise the coordinator could mistake this
            // store's own jobs for those of other processes.
            self.appended.fetch_add(work.appended, Ordering::SeqCst);
            Ok(answer)
        };
        // A panic may leave the transaction and the routes half changed; the caller rolls both
        // back.
        catch_unwind(AssertUnwindSafe(step))
            .unwrap_or_else(|_| Err(Failure::new(StoreErrorKind::Other, "the call panicked")))
    }

    /// Rolls back the open transaction, if any, and clears the cache of routes.
    pub(crate) fn roll_back(&mut self) {
        self.routes.clear();
        if !self.conn.is_autocommit() {
            // Fails only if SQLite has already rolled back.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }

    /// Ends a transaction that contains only reads.
    pub(crate) fn end_read(&mut self) {
        if !self.conn.is_autocommit() {
            // Nothing was written, so nothing can be lost if this fails.
            let _ = self.conn.execute_batch("COMMIT");
        }
    }

    /// Rolls back the changes of one request to its savepoint, and removes the savepoint.
    pub(crate) fn roll_back_to_savepoint(&mut self) -> Result<()> {
        self.routes.clear();
        Ok(self
            .conn
            .execute_batch("ROLLBACK TO request; RELEASE request")?)
    }
}

/// A call that waits for a thread of the store. The trait hides the type of the call's answer.
pub(crate) trait Request: Send {
    /// Returns whether the caller no longer waits for the answer.
    fn is_abandoned(&self) -> bool;

    /// Returns the time until which the request may wait for the write lock.
    fn patience(&self) -> Instant;

    /// Returns whether a power failure may undo the work. This is true if the work only records
    /// that a process is alive, because the power failure ends that process too.
    fn is_volatile(&self) -> bool;

    /// Tries to find the answer with reads only. Returns true if the caller got its answer, so that
    /// the request is complete.
    fn try_reading(&mut self, session: &mut Session) -> bool;

    /// Runs the work of the call. Stores the answer in the request until the transaction is
    /// committed.
    fn run(&mut self, session: &mut Session) -> Result<()>;

    /// Sends the answer of [`run`](Self::run) to the caller. Called after the transaction was
    /// committed.
    fn answer(self: Box<Self>);

    /// Sends the failure to the caller. Discards the answer of [`run`](Self::run), if there is one.
    fn fail(self: Box<Self>, failure: Failure);
}

type Reply<T> = oneshot::Sender<Result<T>>;
type Look<T> = dyn FnOnce(&mut Work<'_>) -> Result<Option<T>> + Send;

/// A [`Request`] whose work is a closure.
pub(crate) struct Call<T, F> {
    reply: Option<Reply<T>>,
    patience: Instant,
    is_volatile: bool,
    look: Option<Box<Look<T>>>,
    work: Option<F>,
    answer: Option<T>,
}

impl<T, F> Call<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Work<'_>) -> Result<T> + Send + 'static,
{
    pub(crate) fn new(patience: Instant, work: F) -> (Self, oneshot::Receiver<Result<T>>) {
        let (reply, answer) = oneshot::channel();
        let call = Self {
            reply: Some(reply),
            patience,
            is_volatile: false,
            look: None,
            work: Some(work),
            answer: None,
        };
        (call, answer)
    }

    /// Adds a closure that only reads and that runs before the work. If `look` returns an answer,
    /// the caller gets this answer, and the work does not run.
    pub(crate) fn after_look(
        mut self,
        look: impl FnOnce(&mut Work<'_>) -> Result<Option<T>> + Send + 'static,
    ) -> Self {
        self.look = Some(Box::new(look));
        self
    }

    /// Lets a power failure undo the work.
    pub(crate) const fn volatile(mut self) -> Self {
        self.is_volatile = true;
        self
    }

    fn tell(&mut self, answer: Result<T>) {
        if let Some(reply) = self.reply.take() {
            // Fails if the caller no longer waits for the answer.
            let _ = reply.send(answer);
        }
    }
}

impl<T, F> Request for Call<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Work<'_>) -> Result<T> + Send + 'static,
{
    fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    fn patience(&self) -> Instant {
        self.patience
    }

    fn is_volatile(&self) -> bool {
        self.is_volatile
    }

    fn try_reading(&mut self, session: &mut Session) -> bool {
        let Some(look) = self.look.take() else {
            return false;
        };
        match session.run(look) {
            Ok(None) => false,
            Ok(Some(answer)) => {
                self.tell(Ok(answer));
                true
            }
            Err(failure) => {
                self.tell(Err(failure));
                true
            }
        }
    }

    fn run(&mut self, session: &mut Session) -> Result<()> {
        if let Some(work) = self.work.take() {
            self.answer = Some(session.run(work)?);
        }
        Ok(())
    }

    fn answer(mut self: Box<Self>) {
        if let Some(answer) = self.answer.take() {
            self.tell(Ok(answer));
        }
    }

    fn fail(mut self: Box<Self>, failure: Failure) {
        self.tell(Err(failure));
    }
}
