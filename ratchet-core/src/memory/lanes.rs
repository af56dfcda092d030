use std::collections::BTreeMap;

use crate::id::JobId;
use crate::model::{JobRecord, LanePlace, StoredJob};
use crate::name::Name;

/// The unfinished jobs of each lane, by sequence number. The first job is the head of the lane. A
/// lane without unfinished jobs has no entry.
#[derive(Clone, Default)]
pub(super) struct Lanes(BTreeMap<Lane, BTreeMap<i64, JobId>>);

/// Identifies a lane by the names of its queue and of the lane.
type Lane = (Name, Name);

fn lane_of(job: &JobRecord) -> Option<Lane> {
    let lane = job.spec.lane.clone()?;
    Some((job.spec.route.queue.clone(), lane))
}

impl Lanes {
    /// Adds a job at the end of its lane, and returns its place there. `None` if the job has no
    /// lane.
    pub(super) fn enter(&mut self, job: &JobRecord) -> Option<LanePlace> {
        let members = self.0.entry(lane_of(job)?).or_default();
        let last = members.last_key_value().map(|(sequence, _)| *sequence);
        let place = LanePlace::after(last.unwrap_or_default());
        members.insert(place.seq, job.id);
        Some(place)
    }

    /// Adds an unfinished job at the place that it has in its lane.
    pub(super) fn restore(&mut self, job: &StoredJob) {
        if let (Some(place), Some(lane)) = (job.lane_seq, lane_of(&job.record)) {
            self.0.entry(lane).or_default().insert(place, job.record.id);
        }
    }

    /// Removes an ended job from its lane. Returns the head of the lane, if the lane still has
    /// jobs.
    pub(super) fn leave(&mut self, job: &mut StoredJob) -> Option<JobId> {
        let lane = lane_of(&job.record)?;
        let members = self.0.get_mut(&lane)?;
        members.remove(&job.lane_seq.take()?);
        let head = members.first_key_value().map(|(_, head)| *head);
        if head.is_none() {
            self.0.remove(&lane);
        }
        head
    }
}
