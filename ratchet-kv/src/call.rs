//! One call of the store: its transaction, and the steps that several kinds of calls share.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ratchet_core::links::{Ask, Cascade, Changes, WaitingJob};
use ratchet_core::model::{Attempt, BatchRecord, Guard, Parent, StoredJob, Tally};
use ratchet_core::state::JobState;
use ratchet_core::store::StoredLock;
use ratchet_core::time::from_millis;
use ratchet_core::{BatchId, InvalidInput, JobId, Name, Result, StoreError, StoreErrorKind};

use crate::engine::{Entry, Order, Transaction};
use crate::keys::{self, Key, Table};
use crate::store::number_of;

/// The format of the keys, the indexes and the rows. A version of this crate must raise the number
/// if older programs could misread its data, or lose a part of the data when they change a row. On
/// data of the new format, calls of older programs then fail.
const FORMAT: u32 = 2;
/// The number of entries that a scan reads at once.
const PAGE: usize = 256;

/// A running call of the store.
pub(crate) struct Call<T> {
    transaction: T,
    operation: &'static str,
    /// The time of the call, in milliseconds since 1970.
    pub(crate) now: i64,
    /// The format of the stored data; 0 if there is none.
    format: u32,
    /// The jobs that ended in this call, and the jobs that got a new child in this call.
    ended: BTreeSet<JobId>,
    /// The damaged jobs that ended in this call. The running [`Cascade`] does not expect these
    /// ends, so another cascade handles them.
    ended_damaged: BTreeSet<JobId>,
    /// The batches that were closed in this call, and those that got a new child.
    changed: BTreeSet<BatchId>,
    /// The queues and fair keys whose places this call may have freed.
    pub(crate) freed: BTreeSet<(Name, Name)>,
    /// Whether a job ended or was removed of which neither the keys in the indexes nor the fair key
    /// can be read.
    pub(crate) freed_unknown: bool,
}

impl<T: Transaction> Call<T> {
    pub(crate) async fn new(operation: &'static str, mut transaction: T) -> Result<Self> {
        let now = transaction.now().await;
        let mut call = Self {
            transaction,
            operation,
            now: now.map_err(|error| error.during(operation))?,
            format: 0,
            ended: BTreeSet::new(),
            ended_damaged: BTreeSet::new(),
            changed: BTreeSet::new(),
            freed: BTreeSet::new(),
            freed_unknown: false,
        };
        call.format = call.stored_format().await?;
        Ok(call)
    }

    /// Returns the format of the stored data; 0 if nothing was stored yet. Refuses other formats
    /// than [`FORMAT`], which this program could misread or damage.
    async fn stored_format(&mut self) -> Result<u32> {
        let stored = self.get(Key::new(Table::Format)).await?;
        let format = match stored {
            None => 0,
            Some(value) => number_of(&value).unwrap_or(u32::MAX),
        };
        // Since format 1, the row of a job contains the list of its keys in the indexes. Without
        // this list, entries would remain in the indexes when the job is deleted.
        let lacks_format = format == 0 && self.first(Key::new(Table::Job).all()).await?.is_some();
        if [0, FORMAT].contains(&format) && !lacks_format {
            return Ok(format);
        }
        let problem = match format < FORMAT {
            true if format > 0 => format!(
                "the data has format {format}, which no release of ratchet-kv has written; delete it"
            ),
            true => "the data has no format, so it was not written by a release of ratchet-kv; \
                     delete it"
                .to_owned(),
            false => format!(
                "the data has format {format}, but this program reads only format {FORMAT}; \
                 update this program"
            ),
        };
        let error = StoreError::new(StoreErrorKind::Misconfigured, self.operation);
        Err(error.with_source(problem))
    }

    /// Updates what depends on the jobs that ended in this call, and commits the transaction.
    pub(crate) async fn commit(mut self) -> Result<()> {
        self.follow_ends().await?;
        self.store_freed().await?;
        if self.format < FORMAT {
            self.put(Key::new(Table::Format), FORMAT.to_string())
                .await?;
        }
        let operation = self.operation;
        let committed = self.transaction.commit().await;
        committed.map_err(|error| error.during(operation))
    }

    /// Returns the name of the operation, for errors.
    pub(crate) const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the error for input that the store refuses.
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

    /// Returns the next entries of a scan of `keys`, and removes their part from the range `keys`.
    /// The result is empty at the end of the range.
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

    /// Reads a row. Returns `None` if there is no such row, or if the row cannot be read.
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

    /// Reads a job. Returns `None` if there is no such job, or if it is too damaged to be read.
    pub(crate) async fn find(&mut self, id: JobId) -> Result<Option<Found>> {
        let value = self.get(Key::new(Table::Job).job(id)).await?;
        Ok(value.and_then(|value| Found::read(id, &value)))
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
        let keys = keys::entries(job);
        self.replace(&BTreeSet::new(), job, keys, Condition::Whole)
            .await
    }

    /// Applies `change` to a job, and updates the indexes and the lane. If the job ends, records
    /// its end, so that the commit updates the jobs that wait for this job. Returns `None` if the
    /// job does not exist or if it is too damaged to be read.
    ///
    /// A damaged job ends as `Failed` at its first change. A damaged job that is running, however,
    /// stays in all indexes until its claim ends.
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

    /// Does the same as [`change`](Self::change) with a job that was already read. If the job is
    /// damaged, the second argument of `change` is the problem.
    pub(crate) async fn change_found<R: Send>(
        &mut self,
        found: Found,
        change: impl FnOnce(&mut StoredJob, Option<&InvalidInput>) -> R + Send,
    ) -> Result<R> {
        let mut job = found.job.clone();
        let changed = change(&mut job, found.problem.as_ref());
        let mut keys = None;
        if let Some(problem) = &found.problem {
            let holder = |job: &StoredJob| (job.record.state, job.record.node);
            if job.record.state == JobState::Running && holder(&job) == holder(&found.job) {
                // The job keeps its old keys in the indexes. Some, such as the key of a permit,
                // cannot be computed from the damaged job, and must not be removed.
                keys = Some(found.keys.clone());
            } else if !job.record.state.is_terminal() {
                job.fail_damaged(problem, self.now);
            }
        }
        if job.record.state.is_terminal() && !found.job.record.state.is_terminal() {
            let ended = match found.problem {
                None => &mut self.ended,
                Some(_) => {
                    // The fair key or the turn may be what cannot be read.
                    self.note_places(&found.keys);
                    &mut self.ended_damaged
                }
            };
            ended.insert(job.record.id);
            job.lane_seq = None;
        }
        if let Some((queue, key)) = job.freed(found.job.has_place()) {
            self.freed.insert((queue.clone(), key.clone()));
        }
        if job != found.job {
            let keys = keys.unwrap_or_else(|| keys::entries(&job));
            let condition = match found.problem {
                None => Condition::Whole,
                Some(_) => Condition::Damaged,
            };
            self.replace(&found.keys, &job, keys, condition).await?;
        }
        Ok(changed)
    }

    /// Stores a job, and updates the indexes. `old` are its keys in the indexes until now, and
    /// `new` are its keys from now on.
    async fn replace(
        &mut self,
        old: &BTreeSet<Vec<u8>>,
        job: &StoredJob,
        new: BTreeSet<Vec<u8>>,
        condition: Condition,
    ) -> Result<()> {
        let key = Key::new(Table::Job).job(job.record.id);
        let document = job.encode().map_err(|problem| self.failed(problem))?;
        self.put(key, row(document, &new, condition)).await?;
        for key in new.difference(old) {
            self.put_at(key.clone(), Vec::new()).await?;
        }
        self.remove_entries(old.difference(&new)).await
    }

    /// Removes `entries`, which are keys of one job, from the indexes. If the job thereby leaves a
    /// lane, the next job of the lane becomes the head of the lane.
    async fn remove_entries<'k>(
        &mut self,
        entries: impl Iterator<Item = &'k Vec<u8>> + Send,
    ) -> Result<()> {
        for key in entries {
            self.remove(key.clone()).await?;
            let Some(lane) = keys::lane_of(key) else {
                continue;
            };
            while let Some((key, _)) = self.first(lane.clone().all()).await? {
                if self.promote(key).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Makes the job at this key of its lane the head of the lane. If the job is damaged, it leaves
    /// the lane, and the next job becomes the head. Returns false if nothing of the job can be
    /// read, so that the caller must look for the next job.
    async fn promote(&mut self, key: Vec<u8>) -> Result<bool> {
        let id = keys::job_of(&key);
        if let Some(id) = id
            && let Some(found) = self.find(id).await?
        {
            let promote = |job: &mut StoredJob, _: Option<&InvalidInput>| job.promote();
            Box::pin(self.change_found(found, promote)).await?;
            return Ok(true);
        }
        if let Some(id) = id {
            Box::pin(self.set_aside(id)).await?;
        }
        // The row may lack the list of its keys.
        self.remove(key).await?;
        Ok(false)
    }

    /// Removes a job that is too damaged to be read from all indexes. The row of the job remains.
    /// Returns whether the row exists.
    pub(crate) async fn set_aside(&mut self, id: JobId) -> Result<bool> {
        let Some(value) = self.get(Key::new(Table::Job).job(id)).await? else {
            return Ok(false);
        };
        let keys = Row::split(&value).keys;
        self.note_places(&keys);
        self.remove_entries(keys.iter()).await?;
        Ok(true)
    }

    /// Notes the place of a damaged job, from its keys in the indexes.
    fn note_places(&mut self, keys: &BTreeSet<Vec<u8>>) {
        self.freed
            .extend(keys.iter().filter_map(|key| keys::place_of(key)));
        // Without the list of its keys, the job may have had any place.
        self.freed_unknown |= keys.is_empty();
    }

    /// Deletes a job and its history.
    pub(crate) async fn delete(&mut self, found: &Found) -> Result<()> {
        self.remove_entries(found.keys.iter()).await?;
        self.delete_row(found.job.record.id).await
    }

    /// Deletes a job that is too damaged to be read. Returns whether the job existed.
    pub(crate) async fn delete_unreadable(&mut self, id: JobId) -> Result<bool> {
        let exists = self.set_aside(id).await?;
        if exists {
            self.delete_row(id).await?;
        }
        Ok(exists)
    }

    /// Deletes the row and the history of a job that is in no index.
    async fn delete_row(&mut self, id: JobId) -> Result<()> {
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

    /// Returns whether the lock of `guard` still allows a write. Without a guard, every write is
    /// allowed.
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
        self.follow_known_ends().await?;
        while !self.ended_damaged.is_empty() {
            self.ended = std::mem::take(&mut self.ended_damaged);
            self.follow_known_ends().await?;
        }
        Ok(())
    }

    async fn follow_known_ends(&mut self) -> Result<()> {
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
        // A damaged child may have ended already, when its link was decided.
        let unless_ended = |apply: fn(&mut StoredJob, i64)| {
            move |job: &mut StoredJob| {
                if !job.record.state.is_terminal() {
                    apply(job, now);
                }
            }
        };
        // Before the links are decided, so that a damaged child ends as the cascade expects.
        for id in &changes.cancelled {
            self.change(*id, unless_ended(StoredJob::cancel)).await?;
        }
        for (child, place, decided) in &changes.links {
            self.change(*child, |job| job.decide(*place, *decided))
                .await?;
        }
        for id in &changes.released {
            self.change(*id, unless_ended(StoredJob::release)).await?;
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
    /// The keys of the job in the indexes. They are stored, because the keys of a damaged job
    /// cannot be computed from it.
    keys: BTreeSet<Vec<u8>>,
    /// The first problem that reading the row found, if the job is damaged.
    pub(crate) problem: Option<InvalidInput>,
    /// Whether calls that read jobs may return this job. A badly damaged job is not returned.
    pub(crate) can_be_shown: bool,
}

impl Found {
    fn read(id: JobId, value: &[u8]) -> Option<Self> {
        let Row {
            document,
            keys,
            condition,
        } = Row::split(value);
        if let Some(job) = decoded(document, StoredJob::decode) {
            let damaged = condition == Condition::Damaged;
            return Some(Self {
                job,
                keys,
                problem: damaged.then(|| InvalidInput::new("job", "was damaged before")),
                can_be_shown: true,
            });
        }
        let text = String::from_utf8_lossy(document);
        let mut salvaged = StoredJob::salvage(&text)?;
        // The stored value of this field may be damaged. If it were wrongly `false`, the end of
        // this job would not update its children.
        salvaged.job.has_children = true;
        // A claim without a node would be taken from the node that runs it.
        let node = &mut salvaged.job.record.node;
        *node = node.or_else(|| keys.iter().find_map(|key| keys::runner_of(key)));
        (salvaged.job.record.id == id).then_some(Self {
            job: salvaged.job,
            keys,
            problem: Some(salvaged.problem),
            can_be_shown: salvaged.can_be_shown,
        })
    }
}

/// The byte after the document of a row. This byte does not occur in JSON.
const END: u8 = 0;

/// Whether a part of a job was replaced by a default because it could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Whole,
    Damaged,
}

/// Returns the row of a job: its document, and then its keys in the indexes, each after the length
/// of the key. An empty key marks a damaged job.
fn row(document: String, keys: &BTreeSet<Vec<u8>>, condition: Condition) -> Vec<u8> {
    let mut row = document.into_bytes();
    row.push(END);
    let mark = (condition == Condition::Damaged).then(Vec::new);
    for key in mark.iter().chain(keys) {
        let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
        row.extend(length.to_be_bytes());
        row.extend(key);
    }
    row
}

/// The parts of the row of a job.
pub(crate) struct Row<'a> {
    pub(crate) document: &'a [u8],
    /// The keys of the job in the indexes.
    pub(crate) keys: BTreeSet<Vec<u8>>,
    condition: Condition,
}

impl<'a> Row<'a> {
    /// Splits the row of a job.
    pub(crate) fn split(row: &'a [u8]) -> Self {
        let end = row.iter().position(|byte| *byte == END);
        let (document, mut rest) = row.split_at(end.unwrap_or(row.len()));
        rest = rest.get(1..).unwrap_or_default();
        let mut keys = BTreeSet::new();
        while let Some((length, more)) = rest.split_first_chunk() {
            let Some((key, more)) = more.split_at_checked(u16::from_be_bytes(*length).into())
            else {
                break;
            };
            keys.insert(key.to_vec());
            rest = more;
        }
        let condition = match keys.remove(&Vec::new()) {
            true => Condition::Damaged,
            false => Condition::Whole,
        };
        Self {
            document,
            keys,
            condition,
        }
    }
}

/// Decodes a row. If the row cannot be read, logs a warning and returns `None`, so that the call
/// can continue with other rows.
pub(crate) fn decoded<R>(
    value: &[u8],
    decode: impl FnOnce(&str) -> Result<R, InvalidInput>,
) -> Option<R> {
    let text = std::str::from_utf8(value);
    let text = text.map_err(|_| InvalidInput::new("document", "is not UTF-8"));
    match text.and_then(decode) {
        Ok(row) => Some(row),
        Err(error) => {
            tracing::warn!(%error, "skipped a stored row that cannot be read");
            None
        }
    }
}
