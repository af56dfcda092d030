//! Transactions of an application, in which cases enqueue jobs.

use async_trait::async_trait;
use ratchet_core::cluster::JobWakeups;
use ratchet_core::store::AppConnection;
use ratchet_core::{Enqueued, NewJob, Result, SharedStore};

use crate::fixture::BoxError;
use crate::node::{TestNode, ok};

/// Opens the database for an application that also writes data of its own.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Opens a new handle on the database as [`Fixture::open`](crate::Fixture::open) does. Also
    /// returns an application that can begin transactions in which this handle enqueues jobs.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn open(&self) -> Result<(SharedStore, Box<dyn Application>), BoxError>;
}

/// An application that begins transactions with the driver of the store.
#[async_trait]
pub trait Application: Send + Sync {
    /// Begins a transaction on a connection of its own.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn begin(&self) -> Result<Box<dyn OpenTransaction>, BoxError>;
}

/// A transaction that an application has begun. If it is dropped, it is rolled back.
#[async_trait]
pub trait OpenTransaction: Send {
    /// Returns the connection, in the form that the store expects.
    fn connection(&mut self) -> AppConnection<'_>;

    /// Commits the transaction.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn commit(self: Box<Self>) -> Result<(), BoxError>;

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// Any error. The suite then fails the case.
    async fn roll_back(self: Box<Self>) -> Result<(), BoxError>;
}

/// A transaction in which a node enqueues jobs. If the application cannot begin or end it, these
/// methods fail the case.
pub(crate) struct Transaction<'a> {
    node: &'a TestNode,
    open: Box<dyn OpenTransaction>,
}

impl<'a> Transaction<'a> {
    pub(crate) async fn begin(node: &'a TestNode, application: &dyn Application) -> Self {
        match application.begin().await {
            Ok(open) => Self { node, open },
            Err(error) => panic!("the application could not begin a transaction: {error}"),
        }
    }

    /// Enqueues jobs in the transaction, and returns the store's answer.
    pub(crate) async fn try_enqueue(&mut self, jobs: &[NewJob]) -> Result<Vec<Enqueued>> {
        let transactions = self.node.store.transactions();
        let transactions = transactions.expect(
            "the store should support transactions of the application, because the suite lists \
             the power Transactions",
        );
        let wakeups = JobWakeups::of_every_node(jobs);
        let connection = self.open.connection();
        let enqueued = transactions.enqueue_on(connection, jobs.to_vec(), wakeups);
        enqueued.await
    }

    /// Enqueues jobs in the transaction. Fails the case if the store returns an error.
    pub(crate) async fn enqueue(&mut self, jobs: &[NewJob]) -> Vec<Enqueued> {
        ok(self.try_enqueue(jobs).await)
    }

    pub(crate) async fn commit(self) {
        if let Err(error) = self.open.commit().await {
            panic!("the application could not commit its transaction: {error}");
        }
    }

    pub(crate) async fn roll_back(self) {
        if let Err(error) = self.open.roll_back().await {
            panic!("the application could not roll its transaction back: {error}");
        }
    }
}
