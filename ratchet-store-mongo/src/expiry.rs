//! Expiries of jobs: until when jobs must begin. A job has the field `expires_at` until it begins.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use mongodb::options::{FindOptions, Hint};
use ratchet_core::{JobAction, JobId, JobState};

use crate::clock::Now;
use crate::error::Result as Inner;
use crate::pipelines::{self, any_job_id, code};
use crate::row;
use crate::store::MongoStore;

/// The name of the index of the waiting jobs that expire.
pub(crate) const INDEX: &str = "expiry";

/// Returns a filter for the waiting jobs, to which the index is limited.
pub(crate) fn waiting() -> Document {
    doc! { "$lte": code(JobState::Paused) }
}

impl MongoStore {
    /// Removes the expiries of jobs that this call has claimed before them, because these jobs have
    /// begun. If the process ends before this, no node has got the claims, so the jobs have not
    /// begun. [expiry.begun]
    pub(crate) async fn begin_expiring(&self, jobs: &[JobId], call: ObjectId) -> Inner<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let side = self.main();
        let update = doc! { "$unset": { "expires_at": "" } };
        let taken = pipelines::taken(jobs, call);
        side.plain().update_these(&side.jobs, taken, update).await?;
        Ok(())
    }

    /// Cancels up to `limit` waiting jobs that have expired, and returns them in order of id. Uses
    /// index `expiry`. [expiry.pass] [expiry.limit]
    pub(crate) async fn cancel_expired(&self, limit: usize) -> Inner<Vec<JobId>> {
        let side = self.main();
        let now = self.millis(side).await?;
        let overdue = doc! {
            "state": waiting(),
            "expires_at": { "$lte": now },
            "_id": any_job_id(),
        };
        let options = |limit: usize| {
            FindOptions::builder()
                .sort(doc! { "expires_at": 1, "_id": 1 })
                .limit(i64::try_from(limit).unwrap_or(i64::MAX))
                .projection(doc! { "_id": 1 })
                .hint(Hint::Name(INDEX.to_owned()))
                .build()
        };
        let mut on = side.plain();
        let has_transactions = self.has_transactions();
        let look_at = if has_transactions { 1 } else { limit };
        let found = on
            .find(&side.jobs, overdue.clone(), options(look_at))
            .await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut expired = Vec::new();
        if !has_transactions {
            // Nothing else depends on the end of these jobs, because such jobs need transactions.
            for job in row::job_ids(&found) {
                let mut this = overdue.clone();
                this.insert("_id", row::id(job));
                let end = pipelines::moved(JobState::Cancelled, Now::Fixed(now));
                if on.update_one(&side.jobs, this, end).await? > 0 {
                    expired.push(job);
                }
            }
        } else {
            let mut tx = side.begin().await?;
            let ended = async {
                let found = tx.find(&side.jobs, overdue, options(limit)).await?;
                let jobs = row::job_ids(&found);
                let cancel = JobAction::Cancel;
                self.act_together(&mut tx, &jobs, &JobState::ALL, cancel)
                    .await?;
                Ok(jobs)
            }
            .await;
            expired = tx.finish(ended).await?;
        }
        expired.sort_unstable();
        Ok(expired)
    }
}
