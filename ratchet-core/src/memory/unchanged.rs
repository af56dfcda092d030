//! Finds the commands that change nothing, so that a log need not contain them.

use super::command::{Answer, Command};
use super::tables::Tables;
use crate::model::{Fenced, Guard, Guarded, SweptNodes};
use crate::store::{Acquired, Changed};
use crate::time::duration_millis;

impl Tables {
    /// Returns the answer to a command that changes nothing. `None` if it changes the data, or may
    /// change it.
    pub(super) fn unchanged_by(&self, command: &Command<'_>, now: i64) -> Option<Answer> {
        match command {
            Command::ClaimNextBatch(request) => {
                let nothing = self.claims_nothing(request, now);
                nothing.then(|| Answer::Claimed(Vec::new()))
            }
            Command::Reclaim(request) => {
                let lost = self.lost(request, now);
                lost.is_empty().then(|| Answer::Reclaimed(Vec::new()))
            }
            // These also delete idempotency keys that are free again.
            Command::Purge(_) | Command::Archive(_) if self.has_free_keys(now) => None,
            Command::Purge(request) | Command::Archive(request) => {
                self.guarded_number(request.guard.as_ref(), now, || self.old(request, now).len())
            }
            Command::PurgeArchive(request) => {
                self.guarded_number(request.guard.as_ref(), now, || {
                    self.old_archived(request, now).len()
                })
            }
            Command::PurgeBatches(request) => {
                self.guarded_number(request.guard.as_ref(), now, || {
                    self.old_batches(request, now).len()
                })
            }
            Command::Bump { guard, .. } if !self.is_tenure(guard.as_ref(), now) => {
                Some(Answer::Number(Guarded::Stale))
            }
            Command::SweepNodes(sweep) if !self.is_tenure(sweep.guard.as_ref(), now) => {
                Some(Answer::Swept(Guarded::Stale))
            }
            Command::SweepNodes(sweep) => {
                let swept = Answer::Swept(Guarded::Done(SweptNodes::default()));
                (!self.has_swept(sweep, now)).then_some(swept)
            }
            Command::Retire(request) if !self.is_tenure(Some(&request.guard), now) => {
                Some(Answer::Retired(Guarded::Stale))
            }
            Command::Expire { limit } => {
                let overdue = self.overdue(*limit, now);
                overdue.is_empty().then_some(Answer::Expired(overdue))
            }
            Command::ExpireJobs { .. } => {
                let nothing = self.indexes.expired(now).next().is_none();
                nothing.then(|| Answer::Expired(Vec::new()))
            }
            Command::ForgetIdle { limit } => {
                let idle = self.idle(*limit, now);
                idle.is_empty().then_some(Answer::Count(0))
            }
            Command::ClaimDueRecurring(_) => self.none_due(now).map(Answer::Due),
            Command::Pause(request) => {
                let paused = self.pauses.contains(&request.scope);
                paused.then_some(Answer::Changed(Changed::Unchanged))
            }
            Command::Resume(scope) => {
                let paused = self.pauses.contains(scope);
                (!paused).then_some(Answer::Changed(Changed::Unchanged))
            }
            Command::Acquire { .. } | Command::Renew { .. } | Command::Release { .. } => {
                self.lost_lock(command, now)
            }
            _ => None,
        }
    }

    /// Returns the answer to a guarded call that deletes `count` rows, if it deletes none.
    fn guarded_number(
        &self,
        guard: Option<&Guard>,
        now: i64,
        count: impl FnOnce() -> usize,
    ) -> Option<Answer> {
        if !self.is_tenure(guard, now) {
            return Some(Answer::Number(Guarded::Stale));
        }
        (count() == 0).then_some(Answer::Number(Guarded::Done(0)))
    }

    /// Returns the answer to a call on a lock that another owner holds, or that the caller has
    /// lost.
    fn lost_lock(&self, command: &Command<'_>, now: i64) -> Option<Answer> {
        match command {
            Command::Acquire { name, owner, ttl } => {
                let mut lock = self.locks.get(name)?.clone();
                let acquired = lock.acquire(owner, duration_millis(*ttl), now);
                matches!(acquired, Acquired::Held(_)).then_some(Answer::Acquired(acquired))
            }
            Command::Renew {
                name, owner, fence, ..
            }
            | Command::Release { name, owner, fence } => {
                let lock = self.locks.get(name);
                let held = lock.is_some_and(|lock| lock.is_held_by(owner, *fence, now));
                (!held).then_some(Answer::Fenced(Fenced::Stale))
            }
            _ => None,
        }
    }
}
