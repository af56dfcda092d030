//! Leased connections: sends the texts of statements, in transactions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use ratchet_sql::{Leased, Purpose, Result, Run, Statement};
use sqlx::mysql::{MySql, MySqlConnection};
use sqlx::{AssertSqlSafe, Connection, Either, Executor, MySqlPool};

use crate::config::Config;
use crate::connect::{MODES, Target, seconds};
use crate::dialect::{Mysql, Row};
use crate::error::{Classified, classify};
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
                       character_set_results = @ratchet_results, \
                       sql_safe_updates = @ratchet_safe, \
                       innodb_lock_wait_timeout = @ratchet_patience \
                       /*M!100600 , in_predicate_conversion_threshold = @ratchet_threshold */;";
        let own = Self::own(deadline);
        Self {
            begin: format!(
                "SET @ratchet_mode = @@SESSION.sql_mode, \
                 @ratchet_concat = @@SESSION.group_concat_max_len, \
                 @ratchet_results = @@SESSION.character_set_results, \
                 @ratchet_safe = @@SESSION.sql_safe_updates, \
                 @ratchet_patience = @@SESSION.innodb_lock_wait_timeout \
                 /*M!100600 , @ratchet_threshold = @@SESSION.in_predicate_conversion_threshold */; \
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

/// Opens the connections of a store.
pub(crate) struct Connector {
    target: Target,
    own: Arc<Frame>,
    borrowed: Arc<Frame>,
}

impl ratchet_sql::Connector for Connector {
    type Connection = MySqlConnection;
    type Lease = Lease;
    type Lender = MySqlPool;

    async fn connect(&self, _: Purpose) -> Result<MySqlConnection> {
        self.target.connect().await
    }

    async fn close(connection: MySqlConnection) {
        // Even if this fails, the server notices that the connection was closed.
        let _ = connection.close().await;
    }
}

ratchet_sql::lender!(Connector, MySql, classify);

pub(crate) type Connections = ratchet_sql::Connections<Connector>;
pub(crate) type Liveness = ratchet_sql::Liveness<Connector>;

/// Prepares the connections of a store. Opens none.
pub(crate) fn connections(config: &Config) -> Connections {
    let settings = &config.settings;
    let target = Target::new(
        config.options.clone(),
        settings.deadline,
        settings.acquire_timeout,
    );
    let connector = Connector {
        target,
        own: Arc::new(Frame::own(settings.deadline)),
        borrowed: Arc::new(Frame::borrowed(settings.deadline)),
    };
    Connections::new(connector, settings, config.pool.clone(), None)
}

/// A leased connection.
#[derive(Debug)]
pub(crate) struct Lease {
    leased: Leased<Connector>,
    frame: Arc<Frame>,
    /// Text that begins the transaction. It is sent together with the first statement, which saves
    /// a round trip.
    beginning: Option<String>,
    /// Whether the transaction waits for locks for another time than the session.
    impatient: bool,
}

impl From<Leased<Connector>> for Lease {
    fn from(leased: Leased<Connector>) -> Self {
        let connector = leased.connector();
        let frame = match leased.is_lent() {
            true => Arc::clone(&connector.borrowed),
            false => Arc::clone(&connector.own),
        };
        Self {
            leased,
            frame,
            beginning: None,
            impatient: false,
        }
    }
}

impl Lease {
    /// Runs one or more statements without parameters, outside of the lease's transaction.
    pub(crate) async fn run(&mut self, text: impl Into<String>) -> Result<Vec<Row>> {
        Ok(self.fetch(text.into()).await?.rows)
    }

    async fn fetch(&mut self, text: String) -> Result<Results> {
        let results = fetch(self.leased.begin_call()?, text).await;
        self.leased.end_call(results.classified())
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
        let outside = !self.in_transaction();
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
        if self.in_transaction() {
            let begin = self.beginning.take().unwrap_or_default();
            self.leased.in_transaction = true;
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
                if transaction
                    && !self.leased.is_broken()
                    && self.fetch(frame.roll_back.clone()).await.is_err()
                {
                    self.leased.discard();
                }
                Err(failure)
            }
        }
    }

    /// Returns whether a transaction was begun, even if nothing was sent yet.
    const fn in_transaction(&self) -> bool {
        self.leased.in_transaction || self.beginning.is_some()
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
        self.beginning = Some(self.frame.begin.clone());
        Ok(())
    }

    /// Rounds `patience` up to seconds, because the server counts in seconds.
    async fn begin_within(&mut self, patience: Duration) -> Result<()> {
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
                self.leased.in_transaction = false;
                self.impatient = false;
                Ok(value)
            }
            Err(failure) => {
                // If the rollback fails too, the connection is closed, which also rolls back.
                if !self.leased.is_broken() && self.fetch(frame.roll_back.clone()).await.is_ok() {
                    self.leased.in_transaction = false;
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
