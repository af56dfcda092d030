//! Stores jobs inside a transaction of the application.

use ratchet_core::cluster::JobWakeups;
use ratchet_core::model::{Enqueued, NewJob};
use ratchet_sql::{Failure, Loss, Query as _, Result, Run as _, Savepoint};
use sqlx::Executor;
use sqlx::postgres::PgConnection;

use crate::connection::Caller;
use crate::coordinator;
use crate::dialect::Postgres;
use crate::error::Classified;
use crate::store::PostgresStore;

impl Savepoint<Postgres> for Caller<'_> {
    /// A failed statement aborts the whole transaction.
    const ALWAYS: bool = false;

    fn survives(failure: &Failure) -> bool {
        failure.loss == Loss::No
    }

    async fn save(&mut self) -> Result<()> {
        self.run("SAVEPOINT ratchet_enqueue").await
    }

    async fn release(&mut self) -> Result<()> {
        self.run("RELEASE SAVEPOINT ratchet_enqueue").await
    }

    async fn roll_back(&mut self) -> Result<()> {
        self.run("ROLLBACK TO SAVEPOINT ratchet_enqueue; RELEASE SAVEPOINT ratchet_enqueue")
            .await
    }
}

impl Caller<'_> {
    async fn run(&mut self, sql: &'static str) -> Result<()> {
        let connection = &mut *self.0;
        connection.execute(sqlx::raw_sql(sql)).await.classified()?;
        Ok(())
    }
}

impl PostgresStore {
    /// Stores the jobs of one call inside a transaction of the application. Also sends the wakeups
    /// inside the transaction, unless wakeups are off. The commit then delivers them.
    pub(crate) async fn enqueue_through(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
        wakeups: JobWakeups,
    ) -> Result<Vec<Enqueued>> {
        let shared = self.shared();
        let mut caller = Caller(connection);
        let enqueued = shared.enqueue_within(&mut caller, jobs).await?;
        let wakeups = wakeups.of_created(&enqueued);
        if !wakeups.is_empty() && self.has_wakeups() {
            let payloads: Vec<String> = wakeups.iter().map(coordinator::payload).collect();
            let notify = shared.sql().own.notify_queues.query();
            let notify = notify.bind(&self.channel()).bind(&payloads);
            shared.within(caller.rows(notify)).await?;
        }
        Ok(enqueued)
    }
}
