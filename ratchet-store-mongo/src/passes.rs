//! Deletes or archives old finished jobs.

use std::sync::{Mutex, PoisonError};

use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::JobId;
use ratchet_core::model::{Guarded, PurgeRequest};
use ratchet_core::store::Store;
use ratchet_core::time::{self, duration_millis};
use tokio::time::Instant;

use crate::connection::Tx;
use crate::error::Result;
use crate::freed::Freed;
use crate::pipelines::{LONGEST, any_job_id, code};
use crate::row;
use crate::store::MongoStore;

/// What a pass does with old finished jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Deleted,
    Archived,
}

impl Fate {
    /// Returns the number of jobs that one step removes. It is smaller for the archive, because
    /// each archived job is read with its payload.
    const fn at_once(self) -> usize {
        match self {
            Self::Deleted => 1_000,
            Self::Archived => 100,
        }
    }
}

/// Minimum number of jobs that one step reads, even if fewer must be removed. The step needs spare
/// jobs, because some of the jobs may have to stay.
const LEAST_LOOK: usize = 100;
/// Maximum number of jobs that one transaction skips because children still wait for them. The
/// transaction then commits, and the next transaction continues after these jobs.
const MOST_KEPT: usize = 200;

/// The progress of one pass.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Number of jobs removed so far.
    done: usize,
    /// The last job that the pass has read, as its finish time and its id.
    behind: Option<(i64, JobId)>,
    /// Whether the pass is complete.
    over: bool,
}

impl MongoStore {
    /// Deletes or archives old finished jobs, usually in one transaction. Uses several transactions
    /// if many jobs must stay because of their children.
    pub(crate) async fn pass(
        &self,
        operation: &'static str,
        request: &PurgeRequest,
        fate: Fate,
    ) -> ratchet_core::Result<Guarded<u64>> {
        let until = self.call_policy().timely_end(time::monotonic());
        // Keeps the progress of committed transactions, so that a retry does not start again.
        let progress = Mutex::new(Progress::default());
        // A commit whose reply was lost may have taken effect, so the pass is not repeated then.
        // A repeated pass would remove further jobs, and would count only the further jobs.
        self.call_going_on(operation, || self.go_on(request, fate, until, &progress))
            .await
    }

    async fn go_on(
        &self,
        request: &PurgeRequest,
        fate: Fate,
        until: Instant,
        progress: &Mutex<Progress>,
    ) -> Result<Guarded<u64>> {
        let side = self.main();
        loop {
            let so_far = *progress.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.millis(side).await?;
            let walked = match self.begin_guarded(side, request.guard.as_ref()).await? {
                None => Guarded::Stale,
                Some(mut tx) => {
                    let walked = self.walk(&mut tx.tx, request, fate, so_far, now).await;
                    tx.finish(self, walked).await?
                }
            };
            match walked {
                // Report the jobs that earlier transactions removed: these transactions were
                // committed while the guard was valid.
                Guarded::Stale if so_far.done > 0 => return Ok(Guarded::Done(count(so_far))),
                Guarded::Stale => return Ok(Guarded::Stale),
                Guarded::Done(walked) => {
                    *progress.lock().unwrap_or_else(PoisonError::into_inner) = walked;
                    if walked.over || time::monotonic() >= until {
                        return Ok(Guarded::Done(count(walked)));
                    }
                }
            }
        }
    }

    /// Removes old jobs in one transaction. Continues after the jobs that earlier transactions of
    /// the pass have read. Returns the new progress. [purge.old] [archive.old] [purge.awaited]
    /// [archive.awaited]
    async fn walk(
        &self,
        tx: &mut Tx<'_>,
        request: &PurgeRequest,
        fate: Fate,
        mut at: Progress,
        now: i64,
    ) -> Result<Progress> {
        // An age beyond the clock's range matches nothing.
        let before = now.saturating_sub(duration_millis(request.older_than).min(LONGEST));
        if at.behind.is_none() {
            // Idempotency keys that are free again. [keys.expire]
            let free = doc! { "until": { "$lte": now } };
            tx.delete_many(&self.main().keys, free).await?;
        }
        let mut kept = 0;
        loop {
            let wanted = fate.at_once().min(request.limit.saturating_sub(at.done));
            let page = wanted.max(LEAST_LOOK);
            let mut old = self.old_jobs(tx, request, before, at.behind, page).await?;
            let found = old.len();
            let looked = self.awaited(tx, &old).await?;
            let tired = looked.at < found;
            old.truncate(looked.at);
            let mut last = old.last().cloned();
            kept += looked.awaited.len();
            old.retain(|row| row::job_id(row, "_id").is_ok_and(|id| !looked.awaited.contains(&id)));
            let more = old.len() > wanted;
            if more {
                old.truncate(wanted);
                last = old.last().cloned();
            }
            if let Some(last) = last {
                at.behind = Some((row::int(&last, "finished_at")?, row::job_id(&last, "_id")?));
            }
            at.done += match fate {
                Fate::Deleted => self.purge_these(tx, request, &old, before).await?,
                Fate::Archived => self.put_away(tx, request, &old, now).await?,
            };
            at.over = at.done >= request.limit || (found < page && !tired && !more);
            if at.over || tired || kept >= MOST_KEPT {
                return Ok(at);
            }
        }
    }

    /// Returns up to `limit` old finished jobs, in the order in which they finished. Uses index
    /// `finished`.
    async fn old_jobs(
        &self,
        tx: &mut Tx<'_>,
        request: &PurgeRequest,
        before: i64,
        behind: Option<(i64, JobId)>,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>> {
        let old = finished_before(code(request.state), before, behind);
        let mut fields = doc! { "finished_at": 1, "children": 1, "links": 1 };
        fields.extend(Freed::fields());
        let options = FindOptions::builder()
            .sort(doc! { "finished_at": 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(fields)
            .build();
        tx.find(&self.main().jobs, old, options).await
    }
}

fn count(progress: Progress) -> u64 {
    u64::try_from(progress.done).unwrap_or(u64::MAX)
}

/// Returns a filter for jobs in the terminal state `state` that finished before `before`. If
/// `behind` is set, the filter matches only jobs after that job.
fn finished_before(state: i32, before: i64, behind: Option<(i64, JobId)>) -> Document {
    let mut old = doc! {
        "state": state,
        "finished_at": { "$lt": before },
        "_id": any_job_id(),
    };
    if let Some((at, id)) = behind {
        old.insert("finished_at", doc! { "$gte": at, "$lt": before });
        let later = doc! { "finished_at": { "$gt": at } };
        old.insert("$or", vec![later, doc! { "_id": { "$gt": row::id(id) } }]);
    }
    old
}
