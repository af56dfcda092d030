//! Storing jobs inside a transaction of the application.

use std::collections::BTreeSet;
use std::time::Duration;

use ratchet_core::Name;
use ratchet_core::cluster::Wakeup;
use ratchet_core::model::{Enqueued, NewJob, RunAt};
use ratchet_sql::{Failure, Loss, Query as _, Result, Run as _, Savepoint};
use sqlx::Executor;
use sqlx::postgres::PgConnection;

use crate::connection::Caller;
use crate::coordinator;
use crate::dialect::Postgres;
use crate::error::Classified;
use crate::store::PostgresStore;

impl Savepoint<Postgres> for Caller<'_> {
    /// One insert fails only with the transaction.
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
    /// Stores the jobs of one call inside a transaction of the caller's. With `wake` its commit wakes
    /// up the nodes that poll the queues of due jobs, unless wakeups are off.
    pub(crate) async fn enqueue_through(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
        wake: bool,
    ) -> Result<Vec<Enqueued>> {
        let shared = self.shared();
        let mut caller = Caller(connection);
        let enqueued = shared.enqueue_within(&mut caller, jobs).await?;
        if wake && self.has_wakeups() {
            let notified = self.notify_in(connection, jobs, &enqueued);
            shared.within(notified).await?;
        }
        Ok(enqueued)
    }

    async fn notify_in(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
        answers: &[Enqueued],
    ) -> Result<()> {
        let queues: BTreeSet<&Name> = jobs
            .iter()
            .zip(answers)
            .filter(|(_, answer)| matches!(answer, Enqueued::Created(_)))
            .filter(|(job, _)| matches!(job.due(), RunAt::Now | RunAt::In(Duration::ZERO)))
            .filter(|(job, _)| job.spec().signal.is_none())
            .map(|(job, _)| &job.spec().route.queue)
            .collect();
        if queues.is_empty() {
            return Ok(());
        }
        let payloads: Vec<String> = queues
            .into_iter()
            .map(|queue| coordinator::payload(&Wakeup::queue(queue.clone())))
            .collect();
        let notify = self.shared().sql().own.notify_queues.query();
        let notify = notify.bind(&self.channel()).bind(&payloads);
        Caller(connection).rows(notify).await.map(drop)
    }
}
