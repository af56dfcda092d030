//! The collections with their read and write concerns, transactions, and calls of the driver.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT;
use mongodb::options::{
    Acknowledgment, AggregateOptions, CollectionOptions, FindOptions, Hint, ReadConcern,
    ReadPreference, ReturnDocument, SelectionCriteria, UpdateModifications, WriteConcern,
};
use mongodb::{Client, ClientSession, Collection, Database};
use ratchet_core::StoreErrorKind;

use crate::bulk::{MOST, Statement, fitting, matched_in};
use crate::error::{Failure, Loss, Result};

/// A collection whose documents are decoded one by one, so that an unreadable one affects only
/// itself.
pub(crate) type Rows = Collection<RawDocumentBuf>;

/// The write concern and time limit of every call.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) journaled: bool,
    pub(crate) deadline: Duration,
}

impl Terms {
    /// Returns the write concern: a majority must acknowledge a write within the deadline.
    pub(crate) fn write_concern(&self) -> WriteConcern {
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(self.journaled)
            .w_timeout(self.deadline)
            .build()
    }

    /// Returns the same write concern as a document, for a command.
    fn write_concern_document(&self) -> Document {
        doc! { "w": "majority", "j": self.journaled, "wtimeout": millis(self.deadline) }
    }
}

/// Converts a duration to milliseconds, the unit of time limits in commands.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// The store's collections, accessed through one client.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) client: Client,
    pub(crate) database: Database,
    pub(crate) terms: Terms,
    /// One document per job, with its payload and its last attempts.
    pub(crate) jobs: Rows,
    /// The attempts that do not fit into their job's document.
    pub(crate) attempts: Rows,
    /// Idempotency keys, each with the first job that used it.
    pub(crate) keys: Rows,
    pub(crate) routes: Rows,
    /// The paused queues.
    pub(crate) queues: Rows,
    /// The lanes with unfinished jobs.
    pub(crate) lanes: Rows,
    pub(crate) nodes: Rows,
    /// The labels of nodes: nodes that join under the same label conflict here.
    pub(crate) labels: Rows,
    pub(crate) locks: Rows,
    pub(crate) versions: Rows,
    /// The archived jobs, each encoded as one string.
    pub(crate) archive: Rows,
    /// The recurring definitions.
    pub(crate) recurring: Rows,
    /// The permits: how many jobs that need a resource may run.
    pub(crate) permits: Rows,
    /// The state of rate limits, by key.
    pub(crate) rates: Rows,
    /// The links: one document for each thing that a job waits for.
    pub(crate) links: Rows,
    /// The parents: where the end of a job conflicts with enqueues that link to it.
    pub(crate) parents: Rows,
    /// The batches.
    pub(crate) batches: Rows,
    /// Wakeups: one document per queue.
    pub(crate) wakeups: Rows,
    /// The schema version, in one document.
    pub(crate) meta: Rows,
}

impl Side {
    /// Returns the prefix of the collections' names.
    pub(crate) fn prefix(&self) -> &str {
        self.jobs.name().strip_suffix("jobs").unwrap_or_default()
    }

    pub(crate) fn new(database: Database, prefix: &str, terms: &Terms) -> Self {
        let options = CollectionOptions::builder()
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .read_concern(ReadConcern::majority())
            .write_concern(terms.write_concern())
            .build();
        let rows = |name: &str| {
            database.collection_with_options(&format!("{prefix}{name}"), options.clone())
        };
        Self {
            jobs: rows("jobs"),
            attempts: rows("attempts"),
            keys: rows("keys"),
            routes: rows("routes"),
            queues: rows("queues"),
            lanes: rows("lanes"),
            nodes: rows("nodes"),
            labels: rows("labels"),
            locks: rows("locks"),
            versions: rows("versions"),
            archive: rows("archive"),
            recurring: rows("recurring"),
            permits: rows("permits"),
            rates: rows("rates"),
            links: rows("links"),
            parents: rows("parents"),
            batches: rows("batches"),
            wakeups: rows("wakeups"),
            meta: rows("meta"),
            client: database.client().clone(),
            database,
            terms: terms.clone(),
        }
    }

    /// Returns a handle for calls outside of transactions.
    pub(crate) fn plain(&self) -> Tx<'_> {
        Tx {
            session: Session::None,
            terms: &self.terms,
        }
    }

    /// Begins a transaction. All its reads see the majority-committed snapshot from when it began.
    pub(crate) async fn begin(&self) -> Result<Tx<'_>> {
        let mut session = self.client.start_session().await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(self.terms.write_concern())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .await?;
        Ok(Tx {
            session: Session::Own(Box::new(session)),
            terms: &self.terms,
        })
    }

    /// Runs updates as [`Tx::bulk`] does, outside of a transaction and in two concurrent streams of
    /// commands, because the server runs each command on one core.
    pub(crate) async fn bulk_in_two(
        &self,
        rows: &Rows,
        mut statements: Vec<Statement>,
    ) -> Result<u64> {
        let half = statements.len().div_ceil(2);
        let others = statements.split_off(half);
        let (mut one, mut other) = (self.plain(), self.plain());
        let (some, others) = tokio::join!(one.bulk(rows, statements), other.bulk(rows, others));
        Ok(some? + others?)
    }

    /// Returns a handle for calls inside a transaction of the application.
    pub(crate) fn within<'a>(&'a self, session: &'a mut ClientSession) -> Tx<'a> {
        Tx {
            session: Session::Theirs(session),
            terms: &self.terms,
        }
    }
}

enum Session<'a> {
    None,
    /// Aborts its transaction when dropped.
    Own(Box<ClientSession>),
    Theirs(&'a mut ClientSession),
}

/// A handle for calls, in a transaction or without one.
pub(crate) struct Tx<'a> {
    session: Session<'a>,
    terms: &'a Terms,
}

/// Runs an action of the driver, with the session if there is one.
macro_rules! run {
    ($tx:expr, $action:expr) => {
        match $tx.session() {
            Some(session) => $action.session(session).await,
            None => $action.await,
        }
    };
}

impl Tx<'_> {
    fn session(&mut self) -> Option<&mut ClientSession> {
        match &mut self.session {
            Session::None => None,
            Session::Own(session) => Some(session),
            Session::Theirs(session) => Some(session),
        }
    }

    /// Commits the transaction if `done` is `Ok`, else aborts it. Repeats a commit whose outcome is
    /// unknown until the outcome is known or the commit times out. If this handle has not begun a
    /// transaction, returns `done` unchanged.
    pub(crate) async fn finish<T>(mut self, done: Result<T>) -> Result<T> {
        let Session::Own(session) = &mut self.session else {
            return done;
        };
        match done {
            Ok(value) => loop {
                match session.commit_transaction().await {
                    Ok(()) => return Ok(value),
                    Err(error)
                        if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
                            && Failure::from(error.clone()).kind != StoreErrorKind::Timeout => {}
                    Err(error) => return Err(error.into()),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            },
            Err(failure) => {
                if failure.loss == Loss::No {
                    // If this fails, the server aborts the transaction later.
                    let _ = session.abort_transaction().await;
                }
                Err(failure)
            }
        }
    }

    pub(crate) async fn find(
        &mut self,
        rows: &Rows,
        filter: Document,
        options: FindOptions,
    ) -> Result<Vec<RawDocumentBuf>> {
        let mut options = options;
        options.max_time = Some(self.terms.deadline);
        // With this size, the first batch usually contains the whole result.
        let limit = options
            .limit
            .and_then(|limit| u32::try_from(limit).ok())
            .unwrap_or(20_000);
        options.batch_size = Some(limit.saturating_add(1));
        let find = rows.find(filter).with_options(options);
        Ok(match self.session() {
            Some(session) => {
                let mut cursor = find.session(&mut *session).await?;
                cursor.stream(session).try_collect().await?
            }
            None => find.await?.try_collect().await?,
        })
    }

    /// Returns the first document that matches.
    pub(crate) async fn find_one(
        &mut self,
        rows: &Rows,
        filter: Document,
    ) -> Result<Option<RawDocumentBuf>> {
        let find = rows.find_one(filter).max_time(self.terms.deadline);
        Ok(run!(self, find)?)
    }

    pub(crate) async fn aggregate(
        &mut self,
        rows: &Rows,
        pipeline: Vec<Document>,
        concern: ReadConcern,
    ) -> Result<Vec<RawDocumentBuf>> {
        self.aggregate_by(rows, pipeline, concern, None).await
    }

    /// Runs an aggregation as [`aggregate`](Self::aggregate) does, and makes the server use this
    /// index.
    pub(crate) async fn aggregate_by(
        &mut self,
        rows: &Rows,
        pipeline: Vec<Document>,
        concern: ReadConcern,
        index: Option<&str>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let options = AggregateOptions::builder()
            .max_time(self.terms.deadline)
            .batch_size(20_000)
            .hint(index.map(|name| Hint::Name(name.to_owned())))
            .build();
        let aggregate = rows
            .aggregate(pipeline)
            .with_options(options)
            .with_type::<RawDocumentBuf>();
        Ok(match self.session() {
            Some(session) => {
                let mut cursor = aggregate.session(&mut *session).await?;
                cursor.stream(session).try_collect().await?
            }
            None => {
                let cursor = aggregate.read_concern(concern).await?;
                cursor.try_collect().await?
            }
        })
    }

    /// Updates the first document that matches. Returns how many matched: 0 or 1.
    pub(crate) async fn update_one(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64> {
        let update = rows.update_one(filter, update);
        Ok(run!(self, update)?.matched_count)
    }

    /// Updates all documents that match, and returns their number.
    pub(crate) async fn update_many(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<Bson>,
    ) -> Result<u64> {
        let update = doc! { "q": filter, "u": update, "multi": true };
        self.updates(rows, vec![update]).await
    }

    /// Updates all documents that match a filter on `_id`, with the index on `_id`, and returns
    /// their number.
    pub(crate) async fn update_these(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<Bson>,
    ) -> Result<u64> {
        let limit = self.terms.deadline;
        self.update_these_within(limit, rows, filter, update).await
    }

    /// Does the same as [`update_these`](Self::update_these), but the server stops after `limit`,
    /// even if only some of the documents are updated.
    pub(crate) async fn update_these_within(
        &mut self,
        limit: Duration,
        rows: &Rows,
        filter: Document,
        update: impl Into<Bson>,
    ) -> Result<u64> {
        let update = doc! { "q": filter, "u": update, "multi": true, "hint": "_id_" };
        self.updates_within(limit, rows, vec![update]).await
    }

    /// Runs updates that do not affect each other, and returns how many documents matched. The
    /// server stops the command at the deadline, so that no write takes effect after the call has
    /// failed.
    pub(crate) async fn updates(&mut self, rows: &Rows, updates: Vec<Document>) -> Result<u64> {
        if updates.is_empty() {
            return Ok(0);
        }
        let limit = self.terms.deadline;
        self.updates_within(limit, rows, updates).await
    }

    async fn updates_within(
        &mut self,
        limit: Duration,
        rows: &Rows,
        updates: Vec<Document>,
    ) -> Result<u64> {
        let limit = limit.min(self.terms.deadline);
        let mut command = doc! {
            "update": rows.name(),
            "updates": updates,
            "ordered": false,
            "maxTimeMS": millis(limit),
        };
        if matches!(self.session, Session::None) {
            command.insert("writeConcern", self.terms.write_concern_document());
        }
        let database = rows.client().database(&rows.namespace().db);
        let run = database.run_command(command);
        matched_in(&run!(self, run)?)
    }

    /// Updates the first document that matches, and returns it after the change. If none matches,
    /// inserts one if `upsert` is set, and otherwise returns `None`.
    pub(crate) async fn change(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<UpdateModifications>,
        upsert: bool,
    ) -> Result<Option<RawDocumentBuf>> {
        let change = rows
            .find_one_and_update(filter, update)
            .upsert(upsert)
            .max_time(self.terms.deadline)
            .return_document(ReturnDocument::After);
        Ok(run!(self, change)?)
    }

    /// Replaces the document that matches; if none matches, inserts the new document.
    pub(crate) async fn replace(
        &mut self,
        rows: &Rows,
        filter: Document,
        document: &RawDocumentBuf,
    ) -> Result<()> {
        let replace = rows.replace_one(filter, document).upsert(true);
        run!(self, replace)?;
        Ok(())
    }

    pub(crate) async fn insert_many(
        &mut self,
        rows: &Rows,
        documents: &[RawDocumentBuf],
    ) -> Result<()> {
        match documents {
            [] => {}
            [one] => {
                let insert = rows.insert_one(one);
                run!(self, insert)?;
            }
            many => {
                let insert = rows.insert_many(many).ordered(true);
                run!(self, insert)?;
            }
        }
        Ok(())
    }

    pub(crate) async fn delete_many(&mut self, rows: &Rows, filter: Document) -> Result<u64> {
        let delete = rows.delete_many(filter);
        Ok(run!(self, delete)?.deleted_count)
    }

    /// Changes or inserts documents that exist only for conflicts: of two concurrent transactions
    /// that change the same document, the server aborts one.
    pub(crate) async fn meet(&mut self, rows: &Rows, ids: Vec<Bson>) -> Result<()> {
        for ids in ids.chunks(MOST) {
            let meet = |id: &Bson| {
                doc! { "q": { "_id": id }, "u": { "$inc": { "rev": 1_i64 } }, "upsert": true }
            };
            self.updates(rows, ids.iter().map(meet).collect()).await?;
        }
        Ok(())
    }

    /// Runs many different updates in as few commands as possible, and returns how many documents
    /// matched. The statements must not affect each other.
    pub(crate) async fn bulk(
        &mut self,
        rows: &Rows,
        mut statements: Vec<Statement>,
    ) -> Result<u64> {
        let mut matched = 0;
        while !statements.is_empty() {
            let rest = statements.split_off(fitting(&statements));
            let updates: Vec<Document> = statements.into_iter().map(Statement::document).collect();
            statements = rest;
            matched += self.updates(rows, updates).await?;
        }
        Ok(matched)
    }
}
