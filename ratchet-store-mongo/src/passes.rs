//! Passes over old finished jobs: deleting them, or moving them into the archive.

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
use crate::pipelines::{LONGEST, code};
use crate::row;
use crate::store::MongoStore;

/// What becomes of the jobs of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Deleted,
    Archived,
}

impl Fate {
    /// How many jobs are done away with at once; those for the archive are read with their payloads.
    const fn at_once(self) -> usize {
        match self {
            Self::Deleted => 1_000,
            Self::Archived => 100,
        }
    }
}

/// How many jobs are looked at at once, however few are wanted: those in front may be kept.
const LEAST_LOOK: usize = 100;
/// The most jobs that one transaction passes over for their children. The next one goes on behind
/// them, and what this one has done is safe.
const MOST_KEPT: usize = 200;

/// How far a pass has come.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// How many jobs it has done away with.
    done: usize,
    /// The last job that it has looked at.
    behind: Option<(i64, JobId)>,
    /// Whether there is nothing more to be done.
    over: bool,
}

impl MongoStore {
    /// Makes a pass, in one transaction as a rule, and in more where many jobs are kept for their
    /// children.
    pub(crate) async fn pass(
        &self,
        operation: &'static str,
        request: &PurgeRequest,
        fate: Fate,
    ) -> ratchet_core::Result<Guarded<u64>> {
        let until = self.call_policy().timely_end(time::monotonic());
        // What has landed is not done again.
        let progress = Mutex::new(Progress::default());
        // A commit whose answer was lost may have landed. A pass that is repeated would take other jobs, and
        // return only their number.
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
                // What landed before did so in the tenure.
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

    /// Does away with jobs in one transaction, behind those that were looked at. [purge.old]
    /// [archive.old] [purge.awaited] [archive.awaited]
    async fn walk(
        &self,
        tx: &mut Tx<'_>,
        request: &PurgeRequest,
        fate: Fate,
        mut at: Progress,
        now: i64,
    ) -> Result<Progress> {
        // Longer ago than the clock can say is never.
        let before = now.saturating_sub(duration_millis(request.older_than).min(LONGEST));
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

    /// Index `finished`.
    async fn old_jobs(
        &self,
        tx: &mut Tx<'_>,
        request: &PurgeRequest,
        before: i64,
        behind: Option<(i64, JobId)>,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>> {
        let old = finished_before(code(request.state), before, behind);
        let options = FindOptions::builder()
            .sort(doc! { "finished_at": 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! { "finished_at": 1, "children": 1, "links": 1 })
            .build();
        tx.find(&self.main().jobs, old, options).await
    }
}

fn count(progress: Progress) -> u64 {
    u64::try_from(progress.done).unwrap_or(u64::MAX)
}

/// The jobs of a terminal state that finished before this time, behind one that was looked at.
fn finished_before(state: i32, before: i64, behind: Option<(i64, JobId)>) -> Document {
    let mut old = doc! { "state": state, "finished_at": { "$lt": before } };
    if let Some((at, id)) = behind {
        old.insert("finished_at", doc! { "$gte": at, "$lt": before });
        let later = doc! { "finished_at": { "$gt": at } };
        old.insert("$or", vec![later, doc! { "_id": { "$gt": row::id(id) } }]);
    }
    old
}
