//! The newest dead letters, read once for all who look, and again when there may be others.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet_core::NodeId;
use ratchet_core::model::{JobRecord, NodeRecord};
use ratchet_core::time::{self, Timestamp};
use tokio::time::Instant;

use crate::view::{At, DeadLetters, Job, State};

/// How many are read.
pub(super) const READ: usize = 200;

/// How many kinds of them are kept: equal ones are shown as one.
const KEPT: usize = 8;

/// They are read again after this time although nothing is known to have happened: one may have
/// been retried or deleted elsewhere, or have become one without a node.
const AGAIN: Duration = Duration::from_secs(30);

/// The last reading of the newest dead letters.
#[derive(Debug, Default)]
pub(super) struct Failures {
    kept: Option<Kept>,
    /// There may be others since the last reading began.
    changed: bool,
    /// How many dead letters each node said that it has made.
    said: BTreeMap<NodeId, u64>,
    /// How many there were when jobs were last counted.
    counted: Option<u64>,
}

#[derive(Debug)]
struct Kept {
    /// All that were read.
    ids: BTreeMap<String, Option<At>>,
    /// The shown part of them.
    jobs: Vec<DeadLetters>,
    at: Timestamp,
    read_at: Instant,
}

impl Failures {
    /// Takes in what the nodes say that they have done.
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

    /// Takes in how many dead letters were counted.
    pub(super) fn counted(&mut self, failed: u64) {
        let before = self.counted.replace(failed);
        self.changed |= before.is_some_and(|before| before != failed);
    }

    /// Takes in how jobs stand that are new or have changed.
    pub(super) fn saw(&mut self, jobs: &[Job]) {
        let is_kept = |job: &Job| {
            let kept = self.kept.as_ref();
            kept.is_some_and(|kept| kept.ids.contains_key(&job.id))
        };
        let says = |job: &Job| job.state == State::Failed || is_kept(job);
        self.changed |= jobs.iter().any(says);
    }

    /// Notes an action on jobs through this API.
    pub(super) fn acted(&mut self) {
        self.changed = true;
    }

    /// Whether to read them: never done yet, or there may be others.
    pub(super) fn are_wanted(&self) -> bool {
        let is_old = |kept: &Kept| time::monotonic() >= kept.read_at + AGAIN;
        self.changed || self.kept.as_ref().is_none_or(is_old)
    }

    /// Begins a reading. What happens from now on it may not see.
    pub(super) fn begin(&mut self) {
        self.changed = false;
    }

    /// The reading that was begun has failed.
    pub(super) fn failed(&mut self) {
        self.changed = true;
    }

    /// Takes in what was read, and says whether it differs from what was kept.
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

    /// The failures, and when they were read; `None` before the first reading.
    pub(super) fn kept(&self) -> Option<(Vec<DeadLetters>, At)> {
        let kept = self.kept.as_ref()?;
        Some((kept.jobs.clone(), At(kept.at)))
    }
}

/// Groups equal dead letters, by the newest of each group, and keeps the first groups.
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
