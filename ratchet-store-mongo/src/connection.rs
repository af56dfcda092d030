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

/// A collection whose documents are read as raw BSON and decoded one by one. So an unreadable
/// document does not affect the others.
pub(crate) type Rows = Collection<RawDocumentBuf>;

/// Settings for all calls: whether writes wait for the journal, and the time limit.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) journaled: bool,
    pub(crate) deadline: Duration,
}

impl Terms {
    /// Returns the write concern of the store: a majority of the members must acknowledge each
    /// write within the deadline.
    pub(crate) fn write_concern(&self) -> WriteConcern {
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(self.journaled)
            .w_timeout(self.deadline)
            .build()
    }

    /// Returns the write concern of the store as a document, for use in a command.
    fn write_concern_document(&self) -> Document {
        doc! { "w": "majority", "j": self.journaled, "wtimeout": millis(self.deadline) }
    }
}

/// Converts a duration to milliseconds, capped at `i32::MAX`. Commands have their time limits in
/// milliseconds.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// The store's collections, accessed through one client of the driver.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) client: Client,
    pub(crate) database: Database,
    pub(crate) terms: Terms,
    /// Jobs: one document for each job, with its payload and its latest attempts.
    pub(crate) jobs: Rows,
    /// Attempts that do not fit into the document of their job.
    pub(crate) attempts: Rows,
    /// Idempotency keys: one document for each key, with the first job that used the key.
    pub(crate) keys: Rows,
    pub(crate) routes: Rows,
    /// Paused queues and kinds.
    pub(crate) pauses: Rows,
    /// Lanes that have unfinished jobs.
    pub(crate) lanes: Rows,
    pub(crate) nodes: Rows,
    /// Labels of nodes. Each joining node writes to the document of its label, so two joins under
    /// the same label conflict.
    pub(crate) labels: Rows,
    pub(crate) locks: Rows,
    pub(crate) versions: Rows,
    /// Archived jobs: one document for each job, with the whole job encoded as one string.
    pub(crate) archive: Rows,
    /// Definitions of recurring jobs.
    pub(crate) recurring: Rows,
    /// Limits of resources: how many jobs that need a resource may run at the same time.
    pub(crate) permits: Rows,
    /// Limits of fair keys: how many jobs of a key may run at the same time.
    pub(crate) fair_limits: Rows,
    /// Freed entries of fair keys, except those that are in the documents of jobs.
    pub(crate) freed: Rows,
    /// State of the rate limits: one document for each key.
    pub(crate) rates: Rows,
    /// Links: one document for each parent for which a job waits.
    pub(crate) links: Rows,
    /// Parents: documents that exist only to make transactions conflict. The end of a job and an
    /// enqueue that links to this job both write to the parent's document.
    pub(crate) parents: Rows,
    /// Batches of jobs.
    pub(crate) batches: Rows,
    /// Wakeups: one document for each queue.
    pub(crate) wakeups: Rows,
    /// Version of the schema, in a single document.
    pub(crate) meta: Rows,
}

impl Side {
    /// Returns the prefix of the collection names.
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
            pauses: rows("pauses"),
            lanes: rows("lanes"),
            nodes: rows("nodes"),
            labels: rows("labels"),
            locks: rows("locks"),
            versions: rows("versions"),
            archive: rows("archive"),
            recurring: rows("recurring"),
            permits: rows("permits"),
            fair_limits: rows("fair_limits"),
            freed: rows("freed"),
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

    /// Returns a handle for calls outside of any transaction.
    pub(crate) fn plain(&self) -> Tx<'_> {
        Tx {
            session: Session::None,
            terms: &self.terms,
        }
    }

    /// Begins a transaction. All its reads return the majority-committed data as of one point in
    /// time.
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

    /// Runs updates as [`Tx::bulk`] does, outside of a transaction, in two concurrent series of
    /// commands. This is faster, because the server runs each command on one CPU core.
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

    /// Returns a handle for calls inside a transaction of the application, which must have begun on
    /// `session`.
    pub(crate) fn within<'a>(&'a self, session: &'a mut ClientSession) -> Tx<'a> {
        Tx {
            session: Session::Theirs(session),
            terms: &self.terms,
        }
    }
}

enum Session<'a> {
    None,
    /// A session that the store has started for one transaction. If the session is dropped, the
    /// transaction aborts.
    Own(Box<ClientSession>),
    Theirs(&'a mut ClientSession),
}

/// A handle through which calls run, either inside a transaction or without one.
pub(crate) struct Tx<'a> {
    session: Session<'a>,
    terms: &'a Terms,
}

/// Runs an action of the driver, in the handle's session if the handle has one.
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

    /// Commits the transaction if `done` is `Ok`, otherwise aborts it. If the outcome of a commit
    /// is unknown, repeats the commit until the outcome is known or the commit times out.
    ///
    /// If the store did not begin a transaction for this handle, only returns `done`.
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
                    // If this abort fails, the server aborts the transaction later.
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
        // With this batch size, the first batch usually contains the whole result.
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

    /// Returns the first document that matches `filter`, or `None`.
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

    /// Runs an aggregation as [`aggregate`](Self::aggregate) does. If `index` is the name of an
    /// index, the server must use this index.
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

    /// Updates the first document that matches `filter`. Returns the number of matching documents,
    /// 0 or 1.
    pub(crate) async fn update_one(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64> {
        let update = rows.update_one(filter, update);
        Ok(run!(self, update)?.matched_count)
    }

    /// Updates all documents that match `filter`, and returns the number of these documents.
    pub(crate) async fn update_many(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<Bson>,
    ) -> Result<u64> {
        let update = doc! { "q": filter, "u": update, "multi": true };
        self.updates(rows, vec![update]).await
    }

    /// Updates all documents that match `filter`, and returns the number of these documents. The
    /// filter must be on `_id`, because the command forces the server to use the index on `_id`.
    pub(crate) async fn update_these(
        &mut self,
        rows: &Rows,
        filter: Document,
        update: impl Into<Bson>,
    ) -> Result<u64> {
        let limit = self.terms.deadline;
        self.update_these_within(limit, rows, filter, update).await
    }

    /// Updates documents as [`update_these`](Self::update_these) does, but the server stops the
    /// update after `limit`, even if only some of the documents are updated.
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

    /// Runs updates in one command, and returns how many documents matched. The updates must not
    /// affect each other.
    ///
    /// The server stops the command at the deadline. So no write takes effect after this call has
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

    /// Updates the first document that matches `filter`, and returns the changed document. If no
    /// document matches, inserts one if `upsert` is `true`, and otherwise returns `None`.
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

    /// Replaces the document that matches `filter`. If no document matches, inserts `document`.
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

    /// Changes or inserts the documents with these ids. These documents exist only to make
    /// transactions conflict: if two concurrent transactions change the same document, the server
    /// aborts one of them.
    pub(crate) async fn meet(&mut self, rows: &Rows, ids: Vec<Bson>) -> Result<()> {
        for ids in ids.chunks(MOST) {
            let meet = |id: &Bson| {
                doc! { "q": { "_id": id }, "u": { "$inc": { "rev": 1_i64 } }, "upsert": true }
            };
            self.updates(rows, ids.iter().map(meet).collect()).await?;
        }
        Ok(())
    }

    /// Runs many updates in as few commands as possible, and returns how many documents matched.
    /// The updates must not affect each other.
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
