use serde::de::DeserializeOwned;

use super::JobContext;
use crate::error::{InvalidInput, Result};
use crate::id::{BatchId, JobId};
use crate::json::{Json, misfit};
use crate::model::{BatchRecord, Detail, JobRecord, Link, Parent};
use crate::state::JobState;

/// A job for which the running job waited. [`JobContext::parents`] returns such jobs.
///
/// ```
/// # async fn example(ctx: &ratchet::JobContext) -> Result<(), ratchet::BoxError> {
/// for parent in ctx.parents().await? {
///     println!("{}: {:?}", parent.id, parent.state());
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ParentJob {
    /// The id of the parent.
    pub id: JobId,
    /// The link from the running job to the parent, with its condition and its state.
    pub link: Link,
    /// The stored record of the parent. `None` if the parent has been purged.
    pub record: Option<JobRecord>,
}

impl ParentJob {
    /// Returns the state of the parent. `None` if the parent has been purged.
    #[must_use]
    pub fn state(&self) -> Option<JobState> {
        self.record.as_ref().map(|job| job.state)
    }

    /// Returns the result of the parent.
    ///
    /// # Errors
    /// Returns an [`InvalidInput`] if the result does not decode into a `T`. Also returns an
    /// [`InvalidInput`] if there is no result: the parent did not succeed, returned `null`, or has
    /// been purged.
    pub fn result<T: DeserializeOwned>(&self) -> Result<T, InvalidInput> {
        let result = self.record.as_ref().and_then(|job| job.result.as_ref());
        let nothing = || {
            InvalidInput::new(
                "result",
                format!("of the parent {} is not available", self.id),
            )
        };
        decode("result", result.ok_or_else(nothing)?)
    }
}

fn decode<T: DeserializeOwned>(field: &'static str, json: &Json) -> Result<T, InvalidInput> {
    json.decode()
        .map_err(|error| InvalidInput::new(field, format!("does not decode: {}", misfit(&error))))
}

/// A batch for which the running job waited. [`JobContext::batches`] returns such batches.
///
/// ```
/// # async fn example(ctx: &ratchet::JobContext) -> Result<(), ratchet::BoxError> {
/// for batch in ctx.batches().await? {
///     println!("{}: {:?}", batch.id, batch.record);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ParentBatch {
    /// The id of the batch.
    pub id: BatchId,
    /// The link from the running job to the batch, with its condition and its state.
    pub link: Link,
    /// The stored record of the batch, with the numbers of its jobs by outcome. `None` if the batch
    /// has been purged.
    pub record: Option<BatchRecord>,
}

impl JobContext {
    /// Returns the batches for which this job waited, in the order of the job's links. A job that
    /// was enqueued [after a batch](crate::NewJob::after_batch) can use this method to report on
    /// the batch.
    ///
    /// ```
    /// # use ratchet::{Job, JobContext, JobResult};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Report;
    /// impl Job for Report {
    ///     const KIND: &'static str = "report";
    ///     type Output = String;
    ///     async fn run(self, ctx: JobContext) -> JobResult<String> {
    ///         let batches = ctx.batches().await?;
    ///         let import = batches[0].record.as_ref().ok_or("the batch is gone")?;
    ///         Ok(format!("{} of {} rows failed", import.failed, import.total))
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn batches(&self) -> Result<Vec<ParentBatch>> {
        let client = self.client();
        let links = client.parents_of(self.job_id()).await?;
        let batches = links
            .into_iter()
            .filter_map(|link| match link.after.parent() {
                Parent::Batch(id) => Some((id, link)),
                Parent::Job(_) => None,
            });
        let (ids, links): (Vec<BatchId>, Vec<Link>) = batches.unzip();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let records = client.batches(&ids).await?;
        let parents = ids.into_iter().zip(links).zip(records);
        Ok(parents
            .map(|((id, link), record)| ParentBatch { id, link, record })
            .collect())
    }

    /// Returns the jobs for which this job waited, with their results, in the order of this job's
    /// links.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn parents(&self) -> Result<Vec<ParentJob>> {
        let client = self.client();
        let links = client.parents_of(self.job_id()).await?;
        let jobs = links
            .into_iter()
            .filter_map(|link| match link.after.parent() {
                Parent::Job(id) => Some((id, link)),
                Parent::Batch(_) => None,
            });
        let (ids, links): (Vec<JobId>, Vec<Link>) = jobs.unzip();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let records = client.jobs(&ids, Detail::Whole).await?;
        let parents = ids.into_iter().zip(links).zip(records);
        Ok(parents
            .map(|((id, link), record)| ParentJob { id, link, record })
            .collect())
    }

    /// Returns the payload of the signal for which this job waited. `None` if the job did not wait
    /// for a signal.
    ///
    /// # Errors
    /// Fails with `Invalid` if the payload does not decode into a `T`. Also fails if the store
    /// fails.
    pub async fn signal<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let job = self.client().job(self.job_id()).await?;
        let delivered = job.and_then(|job| job.signal?.delivered);
        let payload = delivered.map(|delivery| decode("signal", &delivery.payload));
        Ok(payload.transpose()?)
    }
}
