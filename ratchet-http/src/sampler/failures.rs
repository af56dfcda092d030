//! The newest dead letters, read once for all who look, and again when there may be others.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet_core::NodeId;
use ratchet_core::model::{JobRecord, NodeRecord};
use ratchet_core::time::{self, Timestamp};
use tokio::time::Instant;

use crate::view::{At, Job, State};

/// How many are kept.
pub(super) const KEPT: usize = 8;

/// They are read again after this time although nothing is known to have happened: one may have been
/// retried or deleted elsewhere, or have become one without a node.
const AGAIN: Duration = Duration::from_secs(30);

/// What is known of the newest dead letters.
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
    jobs: Vec<Job>,
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
            let mut kept = self.kept.iter().flat_map(|kept| &kept.jobs);
            kept.any(|one| one.id == job.id)
        };
        let says = |job: &Job| job.state == State::Failed || is_kept(job);
        self.changed |= jobs.iter().any(says);
    }

    /// Notes that somebody has acted on jobs here.
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
        let jobs: Vec<Job> = jobs.iter().map(Job::from).collect();
        let signs = |jobs: &[Job]| -> Vec<(String, Option<At>)> {
            jobs.iter()
                .map(|job| (job.id.clone(), job.finished_at))
                .collect()
        };
        let same = |kept: &Kept| signs(&kept.jobs) == signs(&jobs);
        let differ = !self.kept.as_ref().is_some_and(same);
        self.kept = Some(Kept {
            jobs,
            at,
            read_at: time::monotonic(),
        });
        differ
    }

    /// They, and when they were read; none: they were not yet.
    pub(super) fn kept(&self) -> Option<(Vec<Job>, At)> {
        let kept = self.kept.as_ref()?;
        Some((kept.jobs.clone(), At(kept.at)))
    }
}
