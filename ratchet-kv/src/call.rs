//! One call of the store: a transaction, and what several calls do in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ratchet_core::links::{Ask, Cascade, Changes, WaitingJob};
use ratchet_core::model::{Attempt, BatchRecord, Guard, Parent, StoredJob, Tally};
use ratchet_core::state::JobState;
use ratchet_core::store::StoredLock;
use ratchet_core::time::from_millis;
use ratchet_core::{BatchId, InvalidInput, JobId, Result, StoreError, StoreErrorKind};

use crate::engine::{Entry, Order, Transaction};
use crate::keys::{self, Key, Table};

/// The number of entries that a scan reads at once.
const PAGE: usize = 256;

/// A call under way.
pub(crate) struct Call<T> {
    transaction: T,
    operation: &'static str,
    /// The time of the call, in milliseconds since 1970.
    pub(crate) now: i64,
    /// The jobs that ended in this call, and the jobs that got a new child.
    ended: BTreeSet<JobId>,
    /// The batches that were closed in this call, and those that got a new child.
    changed: BTreeSet<BatchId>,
}

impl<T: Transaction> Call<T> {
    pub(crate) async fn new(operation: &'static str, mut transaction: T) -> Result<Self> {
        let now = transaction.now().await;
        Ok(Self {
            transaction,
            operation,
            now: now.map_err(|error| error.during(operation))?,
            ended: BTreeSet::new(),
            changed: BTreeSet::new(),
        })
    }

    /// Updates what depends on the jobs that ended in this call, and commits the transaction.
    pub(crate) async fn commit(mut self) -> Result<()> {
        self.follow_ends().await?;
        let operation = self.operation;
        let committed = self.transaction.commit().await;
        committed.map_err(|error| error.during(operation))
    }

    /// Returns the error for refused input.
    pub(crate) fn refused(&self, problem: InvalidInput) -> StoreError {
        StoreError::from(problem).during(self.operation)
    }

    /// Returns the error for a row that cannot be encoded.
    fn failed(&self, problem: InvalidInput) -> StoreError {
        StoreError::new(StoreErrorKind::Other, self.operation).with_source(problem)
    }

    pub(crate) async fn get(&mut self, key: Key) -> Result<Option<Vec<u8>>> {
        let value = self.transaction.get(&key.bytes()).await;
        value.map_err(|error| error.during(self.operation))
    }

    pub(crate) async fn put(&mut self, key: Key, value: impl Into<Vec<u8>> + Send) -> Result<()> {
        self.put_at(key.bytes(), value.into()).await
    }

    /// Stores a value under the bytes of a key.
    pub(crate) async fn put_at(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        let put = self.transaction.put(key, value).await;
        put.map_err(|error| error.during(self.operation))
    }

    pub(crate) async fn remove(&mut self, key: Vec<u8>) -> Result<()> {
        let removed = self.transaction.remove(key).await;
        removed.map_err(|error| error.during(self.operation))
    }

    pub(crate) async fn range(
        &mut self,
        keys: Range<Vec<u8>>,
        order: Order,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        if limit == 0 || keys.is_empty() {
            return Ok(Vec::new());
        }
        let entries = self.transaction.range(keys, order, limit).await;
        entries.map_err(|error| error.during(self.operation))
    }

    /// Returns the first entry of a range.
    pub(crate) async fn first(&mut self, keys: Range<Vec<u8>>) -> Result<Option<Entry>> {
        let entries = self.range(keys, Order::Ascending, 1).await?;
        Ok(entries.into_iter().next())
    }

    /// Returns the next entries of a scan, and moves `keys` behind them. The result is empty at the
    /// end of the range.
    pub(crate) async fn page(
        &mut self,
        keys: &mut Range<Vec<u8>>,
        order: Order,
    ) -> Result<Vec<Entry>> {
        let entries = self.range(keys.clone(), order, PAGE).await?;
        if let Some((last, _)) = entries.last() {
            match order {
                Order::Ascending => keys.start = keys::after(last.clone()),
                Order::Descending => keys.end.clone_from(last),
            }
        }
        Ok(entries)
    }

    /// Returns all entries of a range.
    pub(crate) async fn all(&mut self, mut keys: Range<Vec<u8>>) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        loop {
            let page = self.page(&mut keys, Order::Ascending).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Reads a row. `None` if there is no such row, or if it cannot be read.
    pub(crate) async fn read<R>(
        &mut self,
        key: Key,
        decode: impl FnOnce(&str) -> Result<R, InvalidInput> + Send,
    ) -> Result<Option<R>> {
        Ok(self
            .get(key)
            .await?
            .and_then(|value| decoded(&value, decode)))
    }

    /// Stores a row.
    pub(crate) async fn write(
        &mut self,
        key: Key,
        document: Result<String, InvalidInput>,
    ) -> Result<()> {
        let document = document.map_err(|problem| self.failed(problem))?;
        self.put(key, document).await
    }

    /// Reads a job. `None` if there is no such job, or if it cannot even be salvaged.
    pub(crate) async fn find(&mut self, id: JobId) -> Result<Option<Found>> {
        let Some(value) = self.get(Key::new(Table::Job).job(id)).await? else {
            return Ok(None);
        };
        if let Some(job) = decoded(&value, StoredJob::decode) {
            let (problem, can_be_shown) = (None, true);
            return Ok(Some(Found {
                job,
                problem,
                can_be_shown,
            }));
        }
        let text = String::from_utf8_lossy(&value);
        let salvaged = StoredJob::salvage(&text).filter(|salvaged| salvaged.job.record.id == id);
        Ok(salvaged.map(|salvaged| Found {
            job: salvaged.job,
            problem: Some(salvaged.problem),
            can_be_shown: salvaged.can_be_shown,
        }))
    }

    pub(crate) async fn job(&mut self, id: JobId) -> Result<Option<StoredJob>> {
        Ok(self.find(id).await?.map(|found| found.job))
    }

    /// Returns the jobs whose ids are at the end of these entries. Jobs that cannot be read are
    /// left out.
    pub(crate) async fn jobs_of(&mut self, entries: &[Entry]) -> Result<Vec<StoredJob>> {
        let mut jobs = Vec::with_capacity(entries.len());
        for (key, _) in entries {
            if let Some(id) = keys::job_of(key) {
                jobs.extend(self.job(id).await?);
            }
        }
        Ok(jobs)
    }

    /// Stores a new job.
    pub(crate) async fn insert(&mut self, job: &StoredJob) -> Result<()> {
        self.replace(None, job).await
    }

    /// Applies `change` to a job, and updates the indexes and the lane. If the job ends, records
    /// it, so that the jobs that wait for it are updated. Returns `None` if the job does not exist
    /// or cannot be read.
    pub(crate) async fn change<R: Send>(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut StoredJob) -> R + Send,
    ) -> Result<Option<R>> {
        let found = self.find(id).await?;
        match found {
            Some(found) => self
                .change_found(found, |job, _| change(job))
                .await
                .map(Some),
            None => Ok(None),
        }
    }

    /// Applies `change` to a job that was found, as [`change`](Self::change) does. The second
    /// argument of `change` is the problem of a damaged job.
    pub(crate) async fn change_found<R: Send>(
        &mut self,
        found: Found,
        change: impl FnOnce(&mut StoredJob, Option<&InvalidInput>) -> R + Send,
    ) -> Result<R> {
        let before = found.job;
        let id = before.record.id;
        let mut job = before.clone();
        let changed = change(&mut job, found.problem.as_ref());
        let mut lane = None;
        if job.record.state.is_terminal() && !before.record.state.is_terminal() {
            self.ended.insert(id);
            let spec = &job.record.spec;
            lane = spec
                .lane
                .as_ref()
                .map(|lane| keys::lane(&spec.route.queue, lane));
            lane = lane.filter(|_| job.lane_seq.take().is_some());
        }
        self.replace(Some(&before), &job).await?;
        if let Some(lane) = lane
            && let Some((key, _)) = self.first(lane.all()).await?
            && let Some(head) = keys::job_of(&key)
            && let Some(before) = self.job(head).await?
        {
            let mut head = before.clone();
            head.promote();
            self.replace(Some(&before), &head).await?;
        }
        Ok(changed)
    }

    /// Stores a job, and updates the indexes. `before` is the job as it was stored until now.
    async fn replace(&mut self, before: Option<&StoredJob>, job: &StoredJob) -> Result<()> {
        if before == Some(job) {
            return Ok(());
        }
        let key = Key::new(Table::Job).job(job.record.id);
        self.write(key, job.encode()).await?;
        let old = before.map(keys::entries).unwrap_or_default();
        let new = keys::entries(job);
        for key in old.difference(&new) {
            self.remove(key.clone()).await?;
        }
        for key in new.difference(&old) {
            self.put_at(key.clone(), Vec::new()).await?;
        }
        Ok(())
    }

    /// Deletes a job and its history.
    pub(crate) async fn delete(&mut self, job: &StoredJob) -> Result<()> {
        let id = job.record.id;
        for key in keys::entries(job) {
            self.remove(key).await?;
        }
        let history = Key::new(Table::History).job(id).all();
        for (key, _) in self.all(history).await? {
            self.remove(key).await?;
        }
        self.remove(Key::new(Table::Job).job(id).bytes()).await
    }

    /// Adds an ended claim, if there is one, to the history of its job.
    pub(crate) async fn record(&mut self, job: JobId, ended: Option<Attempt>) -> Result<()> {
        let Some(attempt) = ended else {
            return Ok(());
        };
        let key = Key::new(Table::History).job(job).sequence(attempt.seq);
        self.write(key, attempt.encode()).await
    }

    /// Records a job that has ended, or that got a new child.
    pub(crate) fn ended(&mut self, job: JobId) {
        self.ended.insert(job);
    }

    /// Records a batch that was closed, or for which a new job waits.
    pub(crate) fn batch_changed(&mut self, batch: BatchId) {
        self.changed.insert(batch);
    }

    pub(crate) async fn batch(&mut self, id: BatchId) -> Result<Option<BatchRecord>> {
        let key = Key::new(Table::Batch).batch(id);
        self.read(key, BatchRecord::decode).await
    }

    pub(crate) async fn put_batch(&mut self, batch: &BatchRecord) -> Result<()> {
        let key = Key::new(Table::Batch).batch(batch.id);
        self.write(key, batch.encode()).await
    }

    /// Returns whether a write is allowed. A write without a guard is always allowed.
    pub(crate) async fn allows(&mut self, guard: Option<&Guard>) -> Result<bool> {
        let Some(guard) = guard else {
            return Ok(true);
        };
        let key = Key::new(Table::Lock).name(guard.lock.as_str());
        let lock = self.read(key, StoredLock::decode).await?;
        Ok(lock.is_some_and(|lock| lock.allows(guard, self.now)))
    }

    /// Returns the children of a parent, in the order of their ids.
    pub(crate) async fn children(&mut self, parent: Parent) -> Result<Vec<StoredJob>> {
        let entries = self
            .all(Key::new(Table::Child).parent(parent).all())
            .await?;
        self.jobs_of(&entries).await
    }

    /// Updates the jobs and batches that depend on jobs that ended in this call.
    async fn follow_ends(&mut self) -> Result<()> {
        let mut cascade = Cascade::new();
        for id in std::mem::take(&mut self.ended) {
            if let Some(ended) = self.job(id).await?.and_then(|job| job.ended()) {
                cascade.ended(ended);
            }
        }
        for batch in std::mem::take(&mut self.changed) {
            if let Some(batch) = self.batch(batch).await? {
                cascade.batch(batch);
            }
        }
        while let Some(ask) = cascade.next() {
            match ask {
                Ask::Write(changes) => self.write_links(&changes).await?,
                Ask::Children(parents) => cascade.children(self.waiting_for(&parents).await?),
                Ask::Count(ended) => cascade.counted(self.count(&ended).await?),
            }
        }
        // The cascade has already handled the jobs that it ended itself.
        self.ended.clear();
        Ok(())
    }

    async fn waiting_for(&mut self, parents: &[Parent]) -> Result<Vec<WaitingJob>> {
        let mut waiting = BTreeMap::new();
        for parent in parents {
            for child in self.children(*parent).await? {
                waiting.insert(child.record.id, child.waiting());
            }
        }
        Ok(waiting.into_values().collect())
    }

    async fn count(&mut self, ended: &[(JobId, JobState)]) -> Result<Vec<BatchRecord>> {
        let mut tallies: BTreeMap<BatchId, Tally> = BTreeMap::new();
        for (job, state) in ended {
            let batch = self.change(*job, StoredJob::count_in_batch).await?;
            if let Some(batch) = batch.flatten() {
                tallies.entry(batch).or_default().count(*state);
            }
        }
        let mut counted = Vec::with_capacity(tallies.len());
        for (batch, tally) in tallies {
            if let Some(mut batch) = self.batch(batch).await? {
                batch.add(tally);
                self.put_batch(&batch).await?;
                counted.push(batch);
            }
        }
        Ok(counted)
    }

    async fn write_links(&mut self, changes: &Changes) -> Result<()> {
        let now = self.now;
        for (child, place, decided) in &changes.links {
            self.change(*child, |job| job.decide(*place, *decided))
                .await?;
        }
        for id in &changes.cancelled {
            self.change(*id, |job| job.cancel(now)).await?;
        }
        for id in &changes.released {
            self.change(*id, |job| job.release(now)).await?;
        }
        for id in &changes.ended {
            if let Some(mut batch) = self.batch(*id).await? {
                batch.ended_at = Some(from_millis(now));
                self.put_batch(&batch).await?;
            }
        }
        Ok(())
    }
}

/// A job that was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) job: StoredJob,
    /// The first problem of a damaged job.
    pub(crate) problem: Option<InvalidInput>,
    /// Whether reads return the job.
    pub(crate) can_be_shown: bool,
}

/// Decodes a row. Logs a warning and returns `None` if the row cannot be read, so that it does not
/// affect others.
pub(crate) fn decoded<R>(
    value: &[u8],
    decode: impl FnOnce(&str) -> Result<R, InvalidInput>,
) -> Option<R> {
    let text = std::str::from_utf8(value);
    let text = text.map_err(|_| InvalidInput::new("document", "is not UTF-8"));
    match text.and_then(decode) {
        Ok(row) => Some(row),
        Err(error) => {
            tracing::warn!(%error, "a stored row cannot be read");
            None
        }
    }
}
