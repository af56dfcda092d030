//! Connections: the pool for jobs, and the connection reserved for heartbeats and locks.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Generation, Loss, Made, Result, Run, Statement};
use sqlx::mysql::MySqlConnection;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, Either, Executor, MySqlPool};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::config::{Config, PoolSettings};
use crate::connect::{MODES, Target, seconds};
use crate::dialect::{Mysql, Row};
use crate::error::Classified;
use crate::query::{Query, Session};

/// Number of bytes from which on the table of a statement is divided. It is well below the smallest
/// `max_allowed_packet` that the store accepts.
const CHUNK: usize = 1 << 20;

/// What a text is surrounded with if it is not part of a transaction.
#[derive(Debug)]
struct Frame {
    /// Begins a transaction. For a session of the application, first sets up the session.
    begin: String,
    /// Commits. For a session of the application, then restores the session.
    commit: String,
    /// Number of results of `commit`.
    commit_results: usize,
    /// Rolls back, and restores the session.
    roll_back: String,
    /// Restores the time that the session waits for locks.
    patient: String,
    session: Session,
}

impl Frame {
    /// Returns the frame for connections of the store.
    fn own(deadline: Duration) -> Self {
        let patient = format!(
            "SET SESSION innodb_lock_wait_timeout = {}",
            seconds(deadline)
        );
        Self {
            begin: "START TRANSACTION;".to_owned(),
            commit: "COMMIT;".to_owned(),
            commit_results: 1,
            roll_back: format!("ROLLBACK; {patient}"),
            patient,
            session: Session::Own,
        }
    }

    /// Returns the frame for connections of the application's pool, whose sessions have other
    /// settings.
    fn borrowed(deadline: Duration) -> Self {
        let restore = "SET SESSION sql_mode = @ratchet_mode, \
                       group_concat_max_len = @ratchet_concat, \
                       innodb_lock_wait_timeout = @ratchet_patience;";
        let own = Self::own(deadline);
        Self {
            begin: format!(
                "SET @ratchet_mode = @@SESSION.sql_mode, \
                 @ratchet_concat = @@SESSION.group_concat_max_len, \
                 @ratchet_patience = @@SESSION.innodb_lock_wait_timeout; \
                 SET SESSION {MODES}, innodb_lock_wait_timeout = {}; \
                 SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION;",
                seconds(deadline)
            ),
            commit: format!("COMMIT; {restore}"),
            commit_results: 2,
            roll_back: format!("ROLLBACK; {restore}"),
            patient: own.patient,
            session: Session::Pool,
        }
    }
}

/// The results of a text.
#[derive(Default)]
struct Results {
    rows: Vec<Row>,
    /// The number of changed rows that the server reported for each statement, and 0 for a query.
    changed: Vec<u64>,
}

async fn fetch(connection: &mut MySqlConnection, text: String) -> sqlx::Result<Results> {
    let mut results = Results::default();
    let mut stream = connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text)));
    while let Some(result) = stream.try_next().await? {
        match result {
            Either::Left(done) => results.changed.push(done.rows_affected()),
            Either::Right(row) => results.rows.push(Row(row)),
        }
    }
    Ok(results)
}

/// A leased connection. Dropping the lease makes the connection available again. The connection is
/// closed instead if it was lost, or if a statement or transaction was not complete.
#[derive(Debug)]
pub(crate) struct Lease {
    held: Held,
    frame: Arc<Frame>,
    /// Whether the state of the connection is unknown, because a statement is still running or was
    /// not completed.
    broken: bool,
    /// Whether the connection was lost, and how.
    loss: Loss,
    /// Whether a transaction is open.
    in_transaction: bool,
    /// Text that begins the transaction. It is sent together with the first statement, which saves
    /// a round trip.
    beginning: Option<String>,
    /// Whether the transaction waits for locks for another time than the session.
    impatient: bool,
    made: Made,
    generation: Generation,
}

#[derive(Debug)]
enum Held {
    Kept(Kept),
    /// A connection of the application's pool. `None` once the lease was dropped.
    Pooled(Option<PoolConnection<sqlx::MySql>>),
    Liveness(OwnedMutexGuard<Option<(MySqlConnection, Made)>>),
}

/// The pool of connections for jobs.
#[derive(Debug)]
pub(crate) struct Pool {
    source: Source,
    frame: Arc<Frame>,
    generation: Generation,
}

#[derive(Debug)]
enum Source {
    Own(Arc<Keep>),
    /// The application's pool.
    Theirs(MySqlPool),
}

/// The connections that the store opens for jobs. The driver's own pool would ping each connection
/// that is returned to it, which costs one more round trip per call. Without the ping, a call may
/// get a lost connection. The call then fails, and the store repeats it.
#[derive(Debug)]
struct Keep {
    target: Target,
    idle: std::sync::Mutex<Vec<Idle>>,
    /// One permit for each connection that may be open.
    permits: Arc<Semaphore>,
    patience: Duration,
    open: Arc<AtomicU32>,
    max: u32,
}

/// An idle connection, with its age.
#[derive(Debug)]
struct Idle {
    connection: Counted,
    made: Made,
    since: Instant,
}

/// A connection that is counted as open until it is dropped.
#[derive(Debug)]
struct Counted {
    connection: MySqlConnection,
    _count: Count,
}

#[derive(Debug)]
struct Count(Arc<AtomicU32>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A leased connection that is put back into [`Keep`] when the lease is dropped.
#[derive(Debug)]
struct Kept {
    /// `None` once the connection was put back or closed.
    connection: Option<Counted>,
    keep: Arc<Keep>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Prepares the pool and the connection for heartbeats and locks. Opens no connection.
    pub(crate) fn open(config: &Config) -> (Self, Liveness) {
        let settings = &config.settings;
        let target = Target::new(
            config.options.clone(),
            settings.deadline,
            settings.acquire_timeout,
        );
        let generation = Generation::new(settings.max_lifetime);
        let own = Arc::new(Frame::own(settings.deadline));
        let (source, frame) = match &config.pool {
            PoolSettings::Own => {
                let max = settings.max_connections();
                let keep = Keep {
                    target: target.clone(),
                    idle: std::sync::Mutex::default(),
                    permits: Arc::new(Semaphore::new(usize::try_from(max).unwrap_or(1))),
                    patience: settings.acquire_timeout,
                    open: Arc::default(),
                    max,
                };
                (Source::Own(Arc::new(keep)), Arc::clone(&own))
            }
            PoolSettings::Theirs(pool) => (
                Source::Theirs(pool.clone()),
                Arc::new(Frame::borrowed(settings.deadline)),
            ),
        };
        let liveness = Liveness {
            target,
            frame: own,
            generation: generation.clone(),
            slot: Arc::default(),
            closed: AtomicBool::new(false),
        };
        let pool = Self {
            source,
            frame,
            generation,
        };
        (pool, liveness)
    }

    /// Leases a connection from the pool. Fails with `Timeout` if none is free within the acquire
    /// timeout.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let now = self.generation.made_now();
        let (held, made) = match &self.source {
            Source::Own(keep) => {
                let (kept, made) = keep.take(now).await?;
                (Held::Kept(kept), made)
            }
            Source::Theirs(pool) => (Held::Pooled(Some(pool.acquire().await.classified()?)), now),
        };
        let frame = Arc::clone(&self.frame);
        Ok(Lease::new(held, frame, made, self.generation.clone()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        match &self.source {
            Source::Own(keep) => keep.permits.is_closed(),
            Source::Theirs(pool) => pool.is_closed(),
        }
    }

    /// Drops the idle connections without sending a message to the server. On a network that is
    /// down, sending could take long.
    pub(crate) fn drop_idle(&self) {
        match &self.source {
            Source::Own(keep) => keep.idle().clear(),
            Source::Theirs(pool) => {
                while let Some(connection) = pool.try_acquire() {
                    drop(connection.detach());
                }
            }
        }
    }

    /// Returns the number of open connections in the pool.
    pub(crate) fn open_connections(&self) -> u32 {
        match &self.source {
            Source::Own(keep) => keep.open.load(Ordering::SeqCst),
            Source::Theirs(pool) => pool.size(),
        }
    }

    pub(crate) fn max_connections(&self) -> u32 {
        match &self.source {
            Source::Own(keep) => keep.max,
            Source::Theirs(pool) => pool.options().get_max_connections(),
        }
    }

    /// Closes the pool. Leased connections are closed when they are returned.
    pub(crate) async fn close(&self) {
        match &self.source {
            Source::Own(keep) => {
                keep.permits.close();
                let idle = std::mem::take(&mut *keep.idle());
                for idle in idle {
                    // Even if this fails, the server notices that the connection was closed.
                    let _ = idle.connection.connection.close().await;
                }
            }
            Source::Theirs(pool) => pool.close().await,
        }
    }
}

impl Keep {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the idle connection that was used last, or opens a new one.
    async fn take(self: &Arc<Self>, now: Made) -> Result<(Kept, Made)> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = match tokio::time::timeout(self.patience, permit).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Failure::closed()),
            Err(_) => {
                let text = "no connection was free in time";
                return Err(Failure::new(StoreErrorKind::Timeout, text));
            }
        };
        let idle = {
            let mut idle = self.idle();
            close_worn(&mut idle, now);
            idle.pop()
        };
        let (connection, made) = match idle {
            Some(idle) => (idle.connection, idle.made),
            None => {
                let connection = self.target.connect().await?;
                self.open.fetch_add(1, Ordering::SeqCst);
                let count = Count(Arc::clone(&self.open));
                let counted = Counted {
                    connection,
                    _count: count,
                };
                (counted, now)
            }
        };
        let kept = Kept {
            connection: Some(connection),
            keep: Arc::clone(self),
            _permit: permit,
        };
        Ok((kept, made))
    }

    fn put_back(&self, connection: Counted, made: Made, now: Made) {
        // The check runs under the lock. So no connection is put back after a closing store has
        // emptied the list.
        let mut idle = self.idle();
        if !self.permits.is_closed() {
            idle.push(Idle {
                connection,
                made,
                since: now.at(),
            });
            close_worn(&mut idle, now);
        }
    }
}

/// Closes connections that are too old or were idle for too long. Sends no message to the server,
/// because the network may have dropped the connection.
fn close_worn(idle: &mut Vec<Idle>, now: Made) {
    idle.retain(|idle| idle.made.is_fresh(idle.since, now));
}

impl Lease {
    const fn new(held: Held, frame: Arc<Frame>, made: Made, generation: Generation) -> Self {
        Self {
            held,
            frame,
            broken: false,
            loss: Loss::No,
            in_transaction: false,
            beginning: None,
            impatient: false,
            made,
            generation,
        }
    }

    /// Runs one or more statements without parameters, outside of the lease's transaction.
    pub(crate) async fn run(&mut self, text: impl Into<String>) -> Result<Vec<Row>> {
        Ok(self.fetch(text.into()).await?.rows)
    }

    async fn fetch(&mut self, text: String) -> Result<Results> {
        self.broken = true;
        let results = fetch(self.connection()?, text).await.classified();
        self.loss = match &results {
            Ok(_) => Loss::No,
            Err(failure) => failure.loss,
        };
        self.broken = self.loss != Loss::No;
        results
    }

    /// Runs a statement, in parts if its table is large. Outside of a transaction, a statement with
    /// several writes runs in one of its own.
    async fn send(&mut self, query: &Query) -> Result<Results> {
        if query.size() <= CHUNK {
            return self.send_part(query).await;
        }
        let parts = query.divided(CHUNK);
        if let [part] = &parts[..] {
            return self.send_part(part).await;
        }
        let outside = !self.in_transaction;
        if outside {
            ratchet_sql::Lease::begin(self).await?;
        }
        let sent = async {
            let mut all = Results::default();
            let mut changed = 0;
            for part in &parts {
                let mut results = self.send_part(part).await?;
                all.rows.append(&mut results.rows);
                changed += results.changed.last().copied().unwrap_or_default();
            }
            all.changed.push(changed);
            Ok(all)
        }
        .await;
        match outside {
            true => ratchet_sql::Lease::finish(self, sent).await,
            false => sent,
        }
    }

    async fn send_part(&mut self, query: &Query) -> Result<Results> {
        let frame = Arc::clone(&self.frame);
        if self.in_transaction {
            let begin = self.beginning.take().unwrap_or_default();
            let text = begin + &query.render(frame.session, "", "");
            return self.fetch(text).await;
        }
        let mut text = query.render(frame.session, &frame.begin, &frame.commit);
        let mut transaction = query.has_transaction();
        if frame.session == Session::Pool && !transaction {
            text = format!("{}{text};{}", frame.begin, frame.commit);
            transaction = true;
        }
        match self.fetch(text).await {
            Ok(mut results) => {
                if transaction {
                    let writes = results.changed.len().saturating_sub(frame.commit_results);
                    results.changed.truncate(writes);
                }
                Ok(results)
            }
            Err(failure) => {
                if transaction && !self.broken && self.fetch(frame.roll_back.clone()).await.is_err()
                {
                    self.broken = true;
                }
                Err(failure)
            }
        }
    }

    fn connection(&mut self) -> Result<&mut MySqlConnection> {
        match &mut self.held {
            Held::Kept(kept) => match &mut kept.connection {
                Some(counted) => Ok(&mut counted.connection),
                None => Err(Failure::no_connection()),
            },
            Held::Pooled(connection) => {
                connection.as_deref_mut().ok_or_else(Failure::no_connection)
            }
            Held::Liveness(slot) => match &mut **slot {
                Some((connection, _)) => Ok(connection),
                None => Err(Failure::no_connection()),
            },
        }
    }
}

impl Run<Mysql> for Lease {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        Ok(self.send(&query).await?.rows)
    }

    /// Returns the number of rows that the last part of the statement changed.
    async fn execute(&mut self, query: Query) -> Result<u64> {
        let results = self.send(&query).await?;
        Ok(results.changed.last().copied().unwrap_or_default())
    }
}

impl ratchet_sql::Lease<Mysql> for Lease {
    /// Returns the number in the first row, if the statement returns one. Otherwise returns how
    /// many rows its last write has changed.
    async fn changed(&mut self, query: Query) -> Result<u64> {
        let results = match self.send(&query).await {
            // The database lacks a route of the jobs, so the statement has changed nothing.
            Err(failure) if failure.refuted => return Ok(0),
            results => results?,
        };
        let Some(row) = results.rows.first() else {
            return Ok(results.changed.last().copied().unwrap_or_default());
        };
        let count: i64 = ratchet_sql::Row::try_get(row, 0)?;
        Ok(count.unsigned_abs())
    }

    async fn script(&mut self, statement: &Statement<Mysql>) -> Result<()> {
        self.send(&statement.query()).await.map(drop)
    }

    async fn begin(&mut self) -> Result<()> {
        self.in_transaction = true;
        self.beginning = Some(self.frame.begin.clone());
        Ok(())
    }

    /// Rounds `patience` up to seconds, because the server counts in seconds.
    async fn begin_within(&mut self, patience: Duration) -> Result<()> {
        self.in_transaction = true;
        self.impatient = true;
        self.beginning = Some(format!(
            "{}SET SESSION innodb_lock_wait_timeout = {};",
            self.frame.begin,
            seconds(patience)
        ));
        Ok(())
    }

    async fn finish<T: Send>(&mut self, result: Result<T>) -> Result<T> {
        let frame = Arc::clone(&self.frame);
        if self.beginning.take().is_some() {
            // No statement was sent, so there is no transaction.
            self.in_transaction = false;
            self.impatient = false;
            return result;
        }
        match result {
            Ok(value) => {
                let patient = match self.impatient && frame.session == Session::Own {
                    true => &*frame.patient,
                    false => "",
                };
                self.fetch(format!("{}{patient}", frame.commit)).await?;
                self.in_transaction = false;
                self.impatient = false;
                Ok(value)
            }
            Err(failure) => {
                // If the rollback fails too, the connection is closed, which also rolls back.
                if !self.broken && self.fetch(frame.roll_back.clone()).await.is_ok() {
                    self.in_transaction = false;
                    self.impatient = false;
                }
                Err(failure)
            }
        }
    }
}

/// The connection of a transaction of the application.
pub(crate) struct Caller<'c>(pub(crate) &'c mut MySqlConnection);

impl Caller<'_> {
    /// Runs statements without parameters.
    pub(crate) async fn run(&mut self, text: &str) -> Result<()> {
        fetch(self.0, text.to_owned()).await.classified().map(drop)
    }

    async fn send(&mut self, query: &Query) -> Result<Results> {
        let parts = match query.size() <= CHUNK {
            true => vec![query.clone()],
            false => query.divided(CHUNK),
        };
        let mut all = Results::default();
        for part in &parts {
            let text = part.render(Session::Transaction, "", "");
            let mut results = fetch(self.0, text).await.classified()?;
            all.rows.append(&mut results.rows);
            all.changed.append(&mut results.changed);
        }
        Ok(all)
    }
}

impl Run<Mysql> for Caller<'_> {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        Ok(self.send(&query).await?.rows)
    }

    async fn execute(&mut self, query: Query) -> Result<u64> {
        let results = self.send(&query).await?;
        Ok(results.changed.last().copied().unwrap_or_default())
    }
}

/// All connections of a store for statements.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) pool: Pool,
    pub(crate) liveness: Liveness,
}

impl ratchet_sql::Connections<Mysql> for Connections {
    async fn lease(&self) -> Result<Lease> {
        self.pool.lease().await
    }

    async fn live(&self) -> Result<Lease> {
        self.liveness.lease().await
    }

    async fn renew_live(&self) -> Result<()> {
        self.liveness.slot.lock().await.take();
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    fn open_connections(&self) -> u32 {
        self.pool.open_connections()
    }

    fn max_connections(&self) -> u32 {
        self.pool.max_connections()
    }

    fn drop_idle(&self) {
        self.pool.drop_idle();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let open = self.in_transaction && self.beginning.is_none();
        let spoiled = self.broken || open;
        if self.loss == Loss::ReadOnly {
            self.generation.end(self.made);
        }
        match &mut self.held {
            Held::Kept(kept) => {
                let Some(connection) = kept.connection.take() else {
                    return;
                };
                if !spoiled {
                    kept.keep
                        .put_back(connection, self.made, self.generation.made_now());
                    return;
                }
                // Sends no message to the server, because the network may be the reason why the
                // call was abandoned.
                drop(connection);
                if self.loss != Loss::No {
                    // The other idle connections may be lost too, or be read-only.
                    kept.keep.idle().clear();
                }
            }
            Held::Pooled(connection) if spoiled => {
                if let Some(connection) = connection.take() {
                    drop(connection.detach());
                }
            }
            Held::Pooled(_) => {}
            Held::Liveness(slot) if spoiled => **slot = None,
            Held::Liveness(_) => {}
        }
    }
}

/// The connection that is reserved for heartbeats and locks. It is opened when it is first needed,
/// and opened again after a loss.
#[derive(Debug)]
pub(crate) struct Liveness {
    target: Target,
    frame: Arc<Frame>,
    generation: Generation,
    slot: Arc<Mutex<Option<(MySqlConnection, Made)>>>,
    closed: AtomicBool,
}

impl Liveness {
    /// Waits until no other call uses the connection, and then leases it.
    pub(crate) async fn lease(&self) -> Result<Lease> {
        let mut slot = Arc::clone(&self.slot).lock_owned().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(Failure::closed());
        }
        let now = self.generation.made_now();
        let made = match &*slot {
            Some((_, made)) if made.is_good(now) => *made,
            _ => {
                *slot = None;
                *slot = Some((self.target.connect().await?, now));
                now
            }
        };
        let frame = Arc::clone(&self.frame);
        Ok(Lease::new(
            Held::Liveness(slot),
            frame,
            made,
            self.generation.clone(),
        ))
    }

    /// Closes the connection. Later leases fail.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some((connection, _)) = self.slot.lock().await.take() {
            // Even if this fails, the server notices that the connection was closed.
            let _ = connection.close().await;
        }
    }
}
