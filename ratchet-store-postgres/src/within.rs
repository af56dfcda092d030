//! Storing jobs inside a transaction of the application.

use std::collections::BTreeSet;
use std::time::Duration;

use ratchet_core::cluster::Wakeup;
use ratchet_core::model::{Enqueued, NewJob, RunAt};
use ratchet_core::{Name, StoreErrorKind};
use ratchet_sql::{Mark, Query as _, Result, Run as _, need_more_than_an_insert};
use sqlx::Executor;
use sqlx::postgres::PgConnection;

use crate::connection::Caller;
use crate::coordinator;
use crate::error::{Classified, classify};
use crate::store::PostgresStore;

/// How often an enqueue that lost a race for a key inside a transaction is tried again.
const TRIES: u32 = 5;

impl PostgresStore {
    /// Stores the jobs of one call inside a transaction of the caller's.
    pub(crate) async fn enqueue_on(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let at_savepoint = need_more_than_an_insert(jobs);
        for _ in 1..TRIES {
            match self.try_enqueue_on(connection, jobs).await {
                // What the server gives up without a savepoint ends the transaction.
                Err(failure) if failure.refuted => {}
                Err(failure) if at_savepoint && failure.kind == StoreErrorKind::Contention => {}
                done => return done,
            }
        }
        self.try_enqueue_on(connection, jobs).await
    }

    async fn try_enqueue_on(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<Enqueued>> {
        let routes = self.marks_of(jobs).await?;
        if need_more_than_an_insert(jobs) {
            return self.enqueue_at_savepoint(connection, jobs, &routes).await;
        }
        let mut connection = Caller(connection);
        self.insert_new(&mut connection, jobs, &routes).await
    }

    async fn enqueue_at_savepoint(
        &self,
        connection: &mut PgConnection,
        jobs: &[NewJob],
        routes: &[Mark],
    ) -> Result<Vec<Enqueued>> {
        connection
            .execute(sqlx::raw_sql("SAVEPOINT ratchet_enqueue"))
            .await
            .classified()?;
        let mut caller = Caller(connection);
        let stored = self.store_jobs(&mut caller, jobs, routes).await;
        let end = match &stored {
            Ok(_) => "RELEASE SAVEPOINT ratchet_enqueue",
            Err(_) => "ROLLBACK TO SAVEPOINT ratchet_enqueue; RELEASE SAVEPOINT ratchet_enqueue",
        };
        match connection.execute(sqlx::raw_sql(end)).await {
            Err(error) if stored.is_ok() => Err(classify(&error)),
            _ => stored,
        }
    }

    /// Lets the commit of the caller's transaction wake up the nodes that poll the queues of due jobs.
    pub(crate) async fn notify_in(
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
        let notify = self.sql().own.notify_queues.query();
        let notify = notify.bind(&self.channel()).bind(&payloads);
        Caller(connection).rows(notify).await.map(drop)
    }
}
