use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::id::{BatchId, JobId};
use crate::json::Json;
use crate::model::{After, BatchRecord, LinkState, Parent};
use crate::state::JobState;

/// Computes, step by step, the effects of ended jobs on the jobs and batches that depend on them.
///
/// ```text
/// while let Some(ask) = cascade.next() {
///     match ask {
///         Ask::Write(changes) => …,
///         Ask::Children(parents) => cascade.children(…),
///         Ask::Count(ended) => cascade.counted(…),
///     }
/// }
/// ```
///
/// The store must perform each [`Ask`] in the transaction in which the jobs ended. It must keep the
/// order of the asks, because each one relies on the previous ones. The asks for batches come last.
/// So a batch is locked for as short a time as possible, even if many of its jobs end at once.
#[derive(Debug, Default)]
pub struct Cascade {
    /// The ended jobs that were added so far, with their states and results.
    ends: HashMap<JobId, (JobState, Option<Json>)>,
    /// The batches that were added so far, with their latest records.
    batches: BTreeMap<BatchId, BatchRecord>,
    /// Ended jobs whose children the store has not read yet.
    parents: Vec<Parent>,
    /// Ended jobs that the store has not counted in their batches yet.
    uncounted: Vec<(JobId, JobState)>,
    /// Changed batches whose waiting jobs the store has not read yet.
    changed: BTreeSet<BatchId>,
    changes: Changes,
}

/// The next step of a [`Cascade`], which the store must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Write these decisions to the database.
    Write(Changes),
    /// Read the jobs that have open links to these parents, each with all of its open links. Pass
    /// the jobs to [`Cascade::children`].
    ///
    /// Lock the jobs before reading them and their links. Then, if two parents of a job end at the
    /// same time, the later transaction reads the decisions of the earlier one.
    Children(Vec<Parent>),
    /// Count these jobs in their batches, each with its terminal state. Skip jobs that were counted
    /// before. Pass the new records of the batches to [`Cascade::counted`]. Keep the batches locked
    /// until the transaction ends.
    Count(Vec<(JobId, JobState)>),
}

/// The decisions of a [`Cascade`], which the store must write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// The links that this step decides. Each entry has the child, the position of the link among
    /// the child's links, and the decision.
    pub links: Vec<(JobId, u32, LinkState)>,
    /// Blocked jobs that become `Cancelled` now. Like every job that ends, each releases its unique
    /// key and leaves its lane.
    pub cancelled: Vec<JobId>,
    /// Blocked jobs that become `Pending` now. Set the due time of each job to its old due time or
    /// the current time, whichever is later.
    pub released: Vec<JobId>,
    /// Batches that have ended now.
    pub ended: Vec<BatchId>,
}

impl Changes {
    fn is_empty(&self) -> bool {
        let Self {
            links,
            cancelled,
            released,
            ended,
        } = self;
        links.is_empty() && cancelled.is_empty() && released.is_empty() && ended.is_empty()
    }
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedJob {
    /// The id of the job.
    pub job: JobId,
    /// The terminal state of the job.
    pub state: JobState,
    /// The result of the job.
    pub result: Option<Json>,
    /// Whether other jobs may have links to this job, and so wait for its end.
    pub has_children: bool,
    /// Whether the job is in a batch.
    pub in_batch: bool,
}

/// A job with links that are not decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingJob {
    /// The id of the job.
    pub job: JobId,
    /// The state of the job. It is `Blocked`, unless the job has already ended or was requeued.
    pub state: JobState,
    /// Whether the job waits for a signal that has not arrived yet.
    pub awaits_signal: bool,
    /// Whether other jobs may have links to this job, and so wait for its end.
    pub has_children: bool,
    /// Whether the job is in a batch.
    pub in_batch: bool,
    /// All links of the job that are not decided yet.
    pub open: Vec<OpenLink>,
}

/// A link that is not decided yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLink {
    /// The position of the link among all links of the child, counted from 0.
    pub place: u32,
    /// The parent that the child waits for.
    pub parent: Parent,
    /// The condition of the link. `None` if the stored condition cannot be read. Such a link can
    /// never be met.
    pub after: Option<After>,
}

impl Cascade {
    /// Creates an empty cascade, without ended jobs and batches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job that has ended. Also call this method for a parent that had ended before its
    /// child was stored. If the job was already added, the call has no effect. So the caller may
    /// add a parent once for each of its children.
    pub fn ended(&mut self, job: EndedJob) {
        debug_assert!(job.state.is_terminal(), "{job:?}");
        if self.ends.contains_key(&job.job) {
            return;
        }
        if job.has_children {
            self.parents.push(Parent::Job(job.job));
        }
        if job.in_batch {
            self.uncounted.push((job.job, job.state));
        }
        self.ends.insert(job.job, (job.state, job.result));
    }

    /// Adds a batch that was closed, or for which a new job waits. The caller must have locked the
    /// batch's row.
    pub fn batch(&mut self, batch: BatchRecord) {
        if batch.is_complete() && batch.ended_at.is_none() {
            self.changes.ended.push(batch.id);
        }
        self.changed.insert(batch.id);
        self.batches.insert(batch.id, batch);
    }

    /// Returns the next step for the store. `None` if the cascade is complete.
    #[expect(
        clippy::should_implement_trait,
        reason = "the caller passes the answer between two calls, which an iterator does not allow"
    )]
    pub fn next(&mut self) -> Option<Ask> {
        if !self.changes.is_empty() {
            return Some(Ask::Write(std::mem::take(&mut self.changes)));
        }
        if !self.parents.is_empty() {
            return Some(Ask::Children(std::mem::take(&mut self.parents)));
        }
        if !self.uncounted.is_empty() {
            return Some(Ask::Count(std::mem::take(&mut self.uncounted)));
        }
        if self.changed.is_empty() {
            return None;
        }
        let changed = std::mem::take(&mut self.changed);
        Some(Ask::Children(
            changed.into_iter().map(Parent::Batch).collect(),
        ))
    }

    /// Accepts the answer to [`Ask::Children`]: the waiting jobs that the store has read.
    pub fn children(&mut self, children: Vec<WaitingJob>) {
        for child in children {
            self.child(&child);
        }
    }

    fn child(&mut self, child: &WaitingJob) {
        let (mut open, mut unmet) = (false, false);
        for link in &child.open {
            let state = self.decide(link);
            match state {
                LinkState::Open => open = true,
                LinkState::Met => {}
                LinkState::Unmet => unmet = true,
            }
            if state != LinkState::Open {
                self.changes.links.push((child.job, link.place, state));
            }
        }
        if child.state != JobState::Blocked {
            return;
        }
        if unmet {
            self.changes.cancelled.push(child.job);
            self.ended(EndedJob {
                job: child.job,
                state: JobState::Cancelled,
                result: None,
                has_children: child.has_children,
                in_batch: child.in_batch,
            });
        } else if super::waiting_state(open, child.awaits_signal) == JobState::Pending {
            self.changes.released.push(child.job);
        }
    }

    /// Returns the state of a link. The link is open if the parents that were added so far do not
    /// decide it.
    fn decide(&self, link: &OpenLink) -> LinkState {
        let met = |met: bool| {
            if met {
                LinkState::Met
            } else {
                LinkState::Unmet
            }
        };
        match (link.parent, &link.after) {
            (Parent::Job(parent), after) => match (self.ends.get(&parent), after) {
                (None, _) => LinkState::Open,
                (Some((state, result)), Some(After::Job { condition, .. })) => {
                    met(condition.met_by(*state, result.as_ref()))
                }
                (Some(_), _) => LinkState::Unmet,
            },
            (Parent::Batch(batch), after) => match (self.batches.get(&batch), after) {
                (None, _) => LinkState::Open,
                (Some(batch), Some(After::Batch { condition, .. })) => condition.decide(batch),
                (Some(_), _) => LinkState::Unmet,
            },
        }
    }

    /// Accepts the answer to [`Ask::Count`]: the records of the batches after the jobs were
    /// counted.
    pub fn counted(&mut self, batches: Vec<BatchRecord>) {
        for batch in batches {
            self.batch(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BatchCondition, Condition};
    use crate::time::from_millis;

    fn ended(job: JobId, state: JobState) -> EndedJob {
        EndedJob {
            job,
            state,
            result: None,
            has_children: true,
            in_batch: false,
        }
    }

    fn waiting(job: JobId, open: Vec<OpenLink>) -> WaitingJob {
        WaitingJob {
            job,
            state: JobState::Blocked,
            awaits_signal: false,
            has_children: true,
            in_batch: false,
            open,
        }
    }

    fn on(place: u32, parent: JobId, condition: Condition) -> OpenLink {
        OpenLink {
            place,
            parent: Parent::Job(parent),
            after: Some(After::Job { parent, condition }),
        }
    }

    #[test]
    fn a_parent_that_is_named_again_is_looked_at_once() {
        let parent = JobId::new();
        let mut cascade = Cascade::new();
        for _ in 0..3 {
            cascade.ended(ended(parent, JobState::Succeeded));
        }
        let children = Ask::Children(vec![Parent::Job(parent)]);
        assert_eq!(cascade.next(), Some(children));
        cascade.children(Vec::new());
        cascade.ended(ended(parent, JobState::Succeeded));
        assert_eq!(cascade.next(), None);
    }

    #[test]
    fn a_job_is_released_when_its_last_link_is_met_and_its_signal_has_come() {
        let [parent, child, other] = [JobId::new(), JobId::new(), JobId::new()];
        let met = (child, 1, LinkState::Met);
        let link = on(1, parent, Condition::Succeeded);
        let open = on(0, other, Condition::Ended);
        for (links, awaits_signal, released) in [
            (vec![link.clone()], false, vec![child]),
            (vec![link.clone()], true, vec![]),
            (vec![open, link], false, vec![]),
        ] {
            let mut cascade = Cascade::new();
            cascade.ended(ended(parent, JobState::Succeeded));
            let parents = vec![Parent::Job(parent)];
            assert_eq!(cascade.next(), Some(Ask::Children(parents)));
            let mut job = waiting(child, links);
            job.awaits_signal = awaits_signal;
            cascade.children(vec![job]);
            let changes = Changes {
                links: vec![met],
                released,
                ..Changes::default()
            };
            assert_eq!(cascade.next(), Some(Ask::Write(changes)));
            assert_eq!(cascade.next(), None);
        }
    }

    #[test]
    fn a_link_that_cannot_be_met_cancels_and_the_cancelled_are_followed() {
        let [a, b, c, d] = [JobId::new(), JobId::new(), JobId::new(), JobId::new()];
        let mut cascade = Cascade::new();
        cascade.ended(ended(a, JobState::Failed));
        cascade.next();
        let open = vec![on(0, a, Condition::Succeeded), on(1, d, Condition::Ended)];
        cascade.children(vec![waiting(b, open)]);
        let changes = Changes {
            links: vec![(b, 0, LinkState::Unmet)],
            cancelled: vec![b],
            ..Changes::default()
        };
        assert_eq!(cascade.next(), Some(Ask::Write(changes)));
        assert_eq!(cascade.next(), Some(Ask::Children(vec![Parent::Job(b)])));
        cascade.children(vec![waiting(c, vec![on(0, b, Condition::Ended)])]);
        let changes = Changes {
            links: vec![(c, 0, LinkState::Met)],
            released: vec![c],
            ..Changes::default()
        };
        assert_eq!(cascade.next(), Some(Ask::Write(changes)));
        assert_eq!(cascade.next(), None);
    }

    #[test]
    fn links_of_jobs_that_are_blocked_no_more_are_only_noted() {
        let [parent, child] = [JobId::new(), JobId::new()];
        for state in JobState::ALL
            .into_iter()
            .filter(|state| *state != JobState::Blocked)
        {
            for end in [JobState::Succeeded, JobState::Cancelled] {
                let mut cascade = Cascade::new();
                cascade.ended(ended(parent, end));
                cascade.next();
                let mut job = waiting(child, vec![on(0, parent, Condition::Succeeded)]);
                job.state = state;
                cascade.children(vec![job]);
                let Some(Ask::Write(changes)) = cascade.next() else {
                    panic!("expected a write of the decided link");
                };
                assert_eq!(changes.links.len(), 1);
                assert!(changes.cancelled.is_empty() && changes.released.is_empty());
                assert_eq!(cascade.next(), None);
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_never_met() {
        let [parent, child] = [JobId::new(), JobId::new()];
        let mut cascade = Cascade::new();
        cascade.ended(ended(parent, JobState::Succeeded));
        cascade.next();
        let mut link = on(0, parent, Condition::Ended);
        link.after = None;
        cascade.children(vec![waiting(child, vec![link])]);
        let Some(Ask::Write(changes)) = cascade.next() else {
            panic!("expected a write of the decided link");
        };
        assert_eq!(changes.cancelled, [child]);
    }

    #[test]
    fn batches_come_last_and_end_with_their_last_child() {
        let [child, callback] = [JobId::new(), JobId::new()];
        let id = BatchId::new();
        let mut cascade = Cascade::new();
        let mut end = ended(child, JobState::Failed);
        end.in_batch = true;
        cascade.ended(end);
        let parents = vec![Parent::Job(child)];
        assert_eq!(cascade.next(), Some(Ask::Children(parents)));
        cascade.children(Vec::new());
        let count = vec![(child, JobState::Failed)];
        assert_eq!(cascade.next(), Some(Ask::Count(count)));
        let mut batch = BatchRecord::new(id, from_millis(0));
        (batch.total, batch.failed, batch.closed) = (1, 1, true);
        cascade.counted(vec![batch]);
        let changes = Changes {
            ended: vec![id],
            ..Changes::default()
        };
        assert_eq!(cascade.next(), Some(Ask::Write(changes)));
        let parents = vec![Parent::Batch(id)];
        assert_eq!(cascade.next(), Some(Ask::Children(parents)));
        let condition = BatchCondition::Failed;
        let after = After::Batch {
            batch: id,
            condition,
        };
        let link = OpenLink {
            place: 0,
            parent: Parent::Batch(id),
            after: Some(after),
        };
        cascade.children(vec![waiting(callback, vec![link])]);
        let Some(Ask::Write(changes)) = cascade.next() else {
            panic!("expected a write of the decided link");
        };
        assert_eq!(changes.released, [callback]);
        assert_eq!(cascade.next(), None);
    }
}
