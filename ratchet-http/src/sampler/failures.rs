//! Keeps the newest dead letters, and decides when to read them again.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet_core::NodeId;
use ratchet_core::model::{JobRecord, NodeRecord};
use ratchet_core::time::{self, Timestamp};
use tokio::time::Instant;

use crate::view::{At, DeadLetters, Job, State};

/// Number of the newest dead letters that a read returns.
pub(super) const READ: usize = 200;

/// The maximum number of groups that are kept. The dead letters of a group have the same kind,
/// queue and error.
const KEPT: usize = 8;

/// The time after which the dead letters are read again even if no change is known. Another program
/// may have retried or deleted a dead letter in this time. The leader may also have declared a job
/// of a crashed node a dead letter.
const AGAIN: Duration = Duration::from_secs(30);

/// The last read of the newest dead letters.
#[derive(Debug, Default)]
pub(super) struct Failures {
    kept: Option<Kept>,
    /// Whether the dead letters may have changed since the last read began.
    changed: bool,
    /// The number of dead letters that each node reported in its totals.
    said: BTreeMap<NodeId, u64>,
    /// The number of dead letters that the last count of jobs found.
    counted: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    /// The ids of all dead letters that were read, and when each ended.
    ids: BTreeMap<String, Option<At>>,
    /// The groups that clients get: dead letters with the same kind, queue and error.
    jobs: Vec<DeadLetters>,
    at: Timestamp,
    read_at: Instant,
}

impl Failures {
    /// Compares the totals of the nodes with their previous totals. Requests a read if a node has
    /// reported new dead letters.
    pub(super) fn heard(&mut self, nodes: &[NodeRecord]) {
        let said = nodes.iter().filter_map(|node| {
            let failed = node.load.totals?.failed;
            Some((node.node, failed))
        });
        let said: BTreeMap<NodeId, u64> = said.collect();
        let more =
            |(node, failed): (&NodeId, &u64)| *failed > self.said.get(node).copied().unwrap_or(0);
        self.changed |= said.iter().any(more);
        self.said = said;
    }

    /// Compares the number of dead letters with the number in the previous count. Requests a read
    /// if the number has changed.
    pub(super) fn counted(&mut self, failed: u64) {
        let before = self.counted.replace(failed);
        self.changed |= before.is_some_and(|before| before != failed);
    }

    /// Checks jobs that are new or have changed. Requests a read if one of them is a dead letter,
    /// or was a dead letter at the last read.
    pub(super) fn saw(&mut self, jobs: &[Job]) {
        let is_kept = |job: &Job| {
            let kept = self.kept.as_ref();
            kept.is_some_and(|kept| kept.ids.contains_key(&job.id))
        };
        let says = |job: &Job| job.state == State::Failed || is_kept(job);
        self.changed |= jobs.iter().any(says);
    }

    /// Requests a read after an action on jobs through this API.
    pub(super) fn acted(&mut self) {
        self.changed = true;
    }

    /// Returns whether the dead letters must be read. They must be read if they may have changed,
    /// have never been read, or were last read at least [`AGAIN`] ago.
    pub(super) fn are_wanted(&self) -> bool {
        let is_old = |kept: &Kept| time::monotonic() >= kept.read_at + AGAIN;
        self.changed || self.kept.as_ref().is_none_or(is_old)
    }

    /// Marks the start of a read. A change after this call requests another read.
    pub(super) fn begin(&mut self) {
        self.changed = false;
    }

    /// Requests another read because the last one failed.
    pub(super) fn failed(&mut self) {
        self.changed = true;
    }

    /// Stores the dead letters that were read, and returns whether they have changed.
    pub(super) fn read(&mut self, jobs: &[JobRecord], at: Timestamp) -> bool {
        let ids = jobs
            .iter()
            .map(|job| (job.id.to_string(), job.finished_at.map(At)));
        let ids = ids.collect();
        let differ = self.kept.as_ref().is_none_or(|kept| kept.ids != ids);
        let jobs = grouped(jobs.iter().map(Job::from));
        self.kept = Some(Kept {
            ids,
            jobs,
            at,
            read_at: time::monotonic(),
        });
        differ
    }

    /// Returns the groups of dead letters and the time of the last read. `None` before the first
    /// read.
    pub(super) fn kept(&self) -> Option<(Vec<DeadLetters>, At)> {
        let kept = self.kept.as_ref()?;
        Some((kept.jobs.clone(), At(kept.at)))
    }
}

/// Groups dead letters that have the same kind, queue and error. Returns the [`KEPT`] groups that
/// contain the newest jobs. The jobs must be sorted newest first.
fn grouped(jobs: impl Iterator<Item = Job>) -> Vec<DeadLetters> {
    let mut groups: Vec<DeadLetters> = Vec::new();
    for job in jobs {
        match groups.iter_mut().find(|group| group.are_like(&job)) {
            Some(group) => group.count += 1,
            None => groups.push(DeadLetters::one(job)),
        }
    }
    groups.truncate(KEPT);
    groups
}

#[cfg(test)]
mod tests {
    use ratchet_core::{JobState, MemoryStore, NewJob, Ratchet};

    use super::*;

    async fn dead(jobs: &[(&str, &str)]) -> Vec<Job> {
        let client = Ratchet::client(std::sync::Arc::new(MemoryStore::new()));
        let mut all = Vec::new();
        for (kind, error) in jobs {
            let id = client.enqueue(NewJob::new(kind, &0)).await.unwrap().id();
            let mut job = client.job(id).await.unwrap().unwrap();
            job.state = JobState::Failed;
            job.last_error = Some((*error).to_owned());
            all.push(Job::from(&job));
        }
        all
    }

    #[tokio::test]
    async fn equal_dead_letters_are_one_and_the_first_groups_are_kept() {
        let mut jobs = dead(&[("a", "full"), ("a", "gone"), ("a", "full"), ("b", "full")]).await;
        let first = jobs[0].id.clone();
        jobs.extend(dead(&[("a", "full"); 20]).await);
        let errors: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let others: Vec<(&str, &str)> = errors.iter().map(|error| ("c", error.as_str())).collect();
        jobs.extend(dead(&others).await);
        let groups = grouped(jobs.into_iter());
        let counts: Vec<usize> = groups.iter().map(|group| group.count).collect();
        assert_eq!(counts, [22, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(groups[0].newest.id, first);
    }
}
