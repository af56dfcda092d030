//! Expiries of jobs: until when jobs must begin. A job has the field `expires_at` until it begins,
//! which its first report shows.

use mongodb::bson::{Document, doc};
use mongodb::options::{FindOptions, Hint};
use ratchet_core::{JobAction, JobId, JobState, StoreErrorKind};

use crate::clock::Now;
use crate::division::{Division, may_go_on};
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

/// Returns a filter for the waiting jobs that have expired, except these jobs.
fn overdue(now: i64, left_out: &[JobId]) -> Document {
    let mut id = any_job_id();
    id.insert("$nin", pipelines::ids(left_out));
    doc! { "state": waiting(), "expires_at": { "$lte": now }, "_id": id }
}

impl MongoStore {
    /// Cancels up to `limit` waiting jobs that have expired, and returns them in order of id. Uses
    /// index `expiry`. [expiry.pass] [expiry.limit]
    ///
    /// Leaves out jobs that another transaction has locked.
    pub(crate) async fn cancel_expired(&self, limit: usize) -> Inner<Vec<JobId>> {
        let mut expired = Vec::new();
        let done = self.expire_up_to(limit, &mut expired).await;
        expired.sort_unstable();
        match done {
            Err(failure) if expired.is_empty() => Err(failure),
            Err(failure) => {
                // These jobs have ended, and no other call returns them.
                let error = failure.to_string();
                tracing::debug!(error, "a pass over expired jobs ended early");
                Ok(expired)
            }
            Ok(()) => Ok(expired),
        }
    }

    async fn expire_up_to(&self, limit: usize, expired: &mut Vec<JobId>) -> Inner<()> {
        let side = self.main();
        let now = self.millis(side).await?;
        let mut left_out = Vec::new();
        let mut conflicts = 0;
        while expired.len() < limit && may_go_on(conflicts) {
            let wanted = limit - expired.len();
            let options = FindOptions::builder()
                .sort(doc! { "expires_at": 1, "_id": 1 })
                .limit(i64::try_from(wanted).unwrap_or(i64::MAX))
                .projection(doc! { "_id": 1 })
                .hint(Hint::Name(INDEX.to_owned()))
                .build();
            let mut on = side.plain();
            let found = on.find(&side.jobs, overdue(now, &left_out), options);
            let jobs = row::job_ids(&found.await?);
            let mut division = Division::new(&jobs, conflicts);
            while let Some(chunk) = division.next() {
                match self.end_expired(chunk, now, expired).await {
                    Ok(()) => {}
                    Err(failure) if failure.kind == StoreErrorKind::Contention => {
                        division.locked(chunk);
                    }
                    Err(failure) => return Err(failure),
                }
            }
            conflicts = division.conflicts();
            left_out.extend(division.left_out().iter().copied());
            if jobs.len() < wanted {
                break;
            }
        }
        if !left_out.is_empty() {
            tracing::debug!(
                jobs = left_out.len(),
                "expired jobs that are locked do not end yet"
            );
        }
        Ok(())
    }

    /// Cancels those of these jobs that wait and have expired, and adds them to `expired`.
    async fn end_expired(&self, jobs: &[JobId], now: i64, expired: &mut Vec<JobId>) -> Inner<()> {
        let side = self.main();
        let mut overdue = overdue(now, &[]);
        if !self.has_transactions() {
            // Nothing else depends on the end of these jobs, because such jobs need transactions.
            for job in jobs {
                overdue.insert("_id", row::id(*job));
                let end = pipelines::moved(JobState::Cancelled, Now::Fixed(now));
                let mut on = side.plain();
                if on.update_one(&side.jobs, overdue.clone(), end).await? > 0 {
                    expired.push(*job);
                }
            }
            return Ok(());
        }
        overdue.insert("_id", doc! { "$in": pipelines::ids(jobs) });
        let mut tx = side.begin().await?;
        let ended = async {
            let only = row::fields(doc! { "_id": 1 });
            let jobs = row::job_ids(&tx.find(&side.jobs, overdue, only).await?);
            self.act_together(&mut tx, &jobs, &JobState::ALL, JobAction::Cancel)
                .await?;
            Ok(jobs)
        }
        .await;
        expired.extend(tx.finish(ended).await?);
        Ok(())
    }
}
