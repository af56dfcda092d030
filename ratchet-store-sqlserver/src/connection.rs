//! Leased connections: sends batches, in transactions.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ratchet_core::StoreErrorKind;
use ratchet_sql::{Failure, Leased, Purpose, Result, Row as _, Run, Statement};
use tiberius::ToSql;

use crate::config::Config;
use crate::connect::{Client, Connector, quietly};
use crate::dialect::SqlServer;
use crate::error::Classified;
use crate::query::Query;
use crate::row::{self, Row};
use crate::session::{self, CHARACTER, Session, lock_timeout};

/// Begins a transaction with the isolation level `READ COMMITTED`, even if an application has set
/// another level. Each statement in the transaction then sees all changes that were committed
/// before that statement.
pub(crate) const BEGIN: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN TRANSACTION";
pub(crate) const COMMIT: &str = "COMMIT TRANSACTION";
/// Commits a transaction in which an application has run statements. Fails if these statements have
/// ended the transaction or begun another one. Returns the number of transactions that are open
/// afterwards. If the application has turned off execution (`SET NOEXEC ON`), the server reports no
/// error and returns no number.
pub(crate) const COMMIT_OWN: &str = "IF @@TRANCOUNT <> 1 THROW 50002, \
     N'statements of the application have ended the transaction, or begun another inside', 1; \
     COMMIT TRANSACTION; SELECT @@TRANCOUNT";
/// Rolls back the transaction, if an error has not already done so.
pub(crate) const ROLL_BACK: &str = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION";

/// A connection, with the state of its session.
pub(crate) struct Connected {
    client: Box<Client>,
    /// State of the session before an application used the connection. `None` if no application has
    /// used it.
    character: Option<String>,
}

impl ratchet_sql::Connector for Connector {
    type Connection = Connected;
    type Lease = Lease;
    type Lender = Infallible;

    async fn connect(&self, _: Purpose) -> Result<Connected> {
        Ok(Connected {
            client: Box::new(self.open().await?),
            character: None,
        })
    }

    async fn close(connection: Connected) {
        drop(connection);
    }
}

pub(crate) type Connections = ratchet_sql::Connections<Connector>;
pub(crate) type Liveness = ratchet_sql::Liveness<Connector>;

/// Prepares the connections of a store. Opens none.
pub(crate) fn connections(config: &Config) -> Connections {
    let session = Session::new(config.settings.deadline);
    Connections::new(
        Connector::new(config, session),
        &config.settings,
        None,
        None,
    )
}

/// A leased connection. After an incomplete call, the driver does not know which part of the answer
/// it has read.
pub(crate) struct Lease {
    leased: Leased<Connector>,
    session: Arc<Session>,
    /// Whether the lock timeout of the session may still be shorter than the normal one.
    impatient: bool,
}

impl From<Leased<Connector>> for Lease {
    fn from(leased: Leased<Connector>) -> Self {
        Self {
            session: leased.connector().session(),
            leased,
            impatient: false,
        }
    }
}

impl Lease {
    /// Runs one or more statements without parameters, in a separate batch.
    pub(crate) async fn batch(&mut self, sql: &str) -> Result<Vec<Row>> {
        let client = self.begin_call()?;
        let done = quietly(async { client.simple_query(sql).await?.into_results().await }).await;
        self.after(done.map(row::all))
    }

    /// Runs statements of an application. Returns the number of rows that the last statement
    /// changed.
    ///
    /// With parameters, the driver runs the statements inside a stored procedure. At the end of the
    /// procedure, the server undoes changes of the session's settings. Without parameters, the
    /// statements run in a batch of their own. The driver returns no row counts for such a batch,
    /// so the count is read with a second query.
    pub(crate) async fn execute_text(
        &mut self,
        sql: &str,
        parameters: &[&dyn ToSql],
    ) -> Result<u64> {
        let client = self.begin_call()?;
        let done = async {
            if !parameters.is_empty() {
                let done = client.execute(sql, parameters).await?;
                return Ok(done.rows_affected().last().copied().unwrap_or_default());
            }
            client.simple_query(sql).await?.into_results().await?;
            let count = client.simple_query("SELECT ROWCOUNT_BIG()").await?;
            let row = count.into_row().await?;
            let count: Option<i64> = row.and_then(|row| row.get(0));
            Ok(count
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or_default())
        };
        let done = quietly(done).await;
        self.after(done)
    }

    /// Runs statements of an application in the same way as [`execute_text`](Self::execute_text).
    /// Returns the rows of the first result.
    pub(crate) async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&dyn ToSql],
    ) -> Result<Vec<tiberius::Row>> {
        let client = self.begin_call()?;
        let done = async {
            let results = if parameters.is_empty() {
                client.simple_query(sql).await?.into_results().await?
            } else {
                client.query(sql, parameters).await?.into_results().await?
            };
            Ok(results.into_iter().next().unwrap_or_default())
        };
        let done = quietly(done).await;
        self.after(done)
    }

    /// Records the state of the session, if it is not recorded yet. Called before an application
    /// uses the connection.
    pub(crate) async fn remember(&mut self) -> Result<()> {
        if self
            .leased
            .connection()
            .is_some_and(|connected| connected.character.is_some())
        {
            return Ok(());
        }
        let character = session::character(&self.batch(CHARACTER).await?)?;
        if let Some(connected) = self.leased.connection() {
            connected.character = Some(character);
        }
        Ok(())
    }

    /// Resets the session after an application has used it, so that the store's statements work
    /// again.
    ///
    /// # Errors
    /// Fails if the state of the session differs from the recorded state, for example in user,
    /// database or language. The caller must then close the connection.
    pub(crate) async fn restore(&mut self) -> Result<()> {
        let session = Arc::clone(&self.session);
        let setup = format!("{}\n{CHARACTER}", session.setup);
        let now = session::character(&self.batch(&setup).await?)?;
        let before = self
            .leased
            .connection()
            .and_then(|connected| connected.character.as_ref());
        if before == Some(&now) {
            return Ok(());
        }
        let text = format!(
            "the application left the session in a state that differs from the \
             state at its begin: {now}"
        );
        Err(Failure::new(StoreErrorKind::Other, text))
    }

    /// Resets the settings of the session, because an application may have changed them. Then runs
    /// `sql` in the same batch.
    pub(crate) async fn batch_anew(&mut self, sql: &str) -> Result<()> {
        let anew = format!("{}\n{sql}", self.session.setup);
        self.batch(&anew).await.map(drop)
    }

    /// Commits a transaction in which an application has run statements. Fails if these statements
    /// have ended the transaction or begun another one.
    pub(crate) async fn commit_own(&mut self) -> Result<()> {
        let rows = self.batch(COMMIT_OWN).await?;
        match rows.first().map(|row| row.try_get::<i32>(0)) {
            Some(Ok(0)) => {
                self.leased.in_transaction = false;
                Ok(())
            }
            _ => Err(Failure::new(
                StoreErrorKind::Other,
                "the server did not run the commit: the application turned on NOEXEC in this session",
            )),
        }
    }

    /// Ends the transaction with the statement `end`. Also resets the lock timeout, if it was
    /// shortened.
    async fn end_with(&mut self, end: &str) -> Result<()> {
        let end = if self.impatient {
            format!("{end}; SET LOCK_TIMEOUT {}", self.session.lock_timeout)
        } else {
            end.to_owned()
        };
        self.batch(&end).await?;
        self.leased.in_transaction = false;
        self.impatient = false;
        Ok(())
    }

    /// Marks the connection as unusable, so that dropping the lease closes it.
    pub(crate) const fn discard(&mut self) {
        self.leased.discard();
    }

    /// Returns whether the connection cannot be used any more.
    pub(crate) const fn is_broken(&self) -> bool {
        self.leased.is_broken()
    }

    fn begin_call(&mut self) -> Result<&mut Client> {
        Ok(&mut self.leased.begin_call()?.client)
    }

    fn after<T>(&mut self, result: tiberius::Result<T>) -> Result<T> {
        let result = self.leased.end_call(result.classified());
        // A statement that shortens the lock timeout restores it at its end. If the statement fails
        // before that end, the lock timeout may still be short.
        let given_up = |failure: &Failure| failure.held || failure.raced();
        self.impatient |= result.as_ref().is_err_and(given_up);
        result
    }
}

impl Run<SqlServer> for Lease {
    async fn rows(&mut self, query: Query) -> Result<Vec<Row>> {
        let rows = query.rows(self.begin_call()?).await;
        self.after(rows)
    }

    /// Runs a statement, which may have several parts. Returns the number of rows that the last
    /// writing part changed.
    async fn execute(&mut self, query: Query) -> Result<u64> {
        let done = query.execute(self.begin_call()?).await;
        self.after(done)
    }
}

impl ratchet_sql::Lease<SqlServer> for Lease {
    /// Runs a statement that selects the number of changed rows, and returns this number. Such a
    /// statement has several parts, and the driver would return one count for each part.
    async fn changed(&mut self, query: Query) -> Result<u64> {
        let rows = self.rows(query).await?;
        let row = rows.first().ok_or_else(Failure::unreadable)?;
        Ok(row.try_get::<i64>(0)?.unsigned_abs())
    }

    async fn script(&mut self, statement: &Statement<SqlServer>) -> Result<()> {
        self.batch(statement.text()).await.map(drop)
    }

    async fn begin(&mut self) -> Result<()> {
        self.leased.in_transaction = true;
        self.batch(BEGIN).await.map(drop)
    }

    async fn begin_within(&mut self, patience: Duration) -> Result<()> {
        self.begin().await?;
        self.impatient = true;
        let limit = format!("SET LOCK_TIMEOUT {}", lock_timeout(patience));
        self.batch(&limit).await.map(drop)
    }

    async fn finish<T: Send>(&mut self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => {
                self.end_with(COMMIT).await?;
                Ok(value)
            }
            Err(failure) => {
                // If the server reported the error, it has already rolled back the transaction.
                // After another failure, the transaction is still open. If the rollback fails too,
                // the connection is closed, which also rolls back.
                if !self.leased.is_broken() {
                    // The caller gets the earlier error.
                    let _ = self.end_with(ROLL_BACK).await;
                }
                Err(failure)
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.impatient {
            self.leased.discard();
        }
    }
}
