use std::collections::{BTreeMap, HashMap};

use crate::id::JobId;
use crate::model::{JobRecord, LanePlace};
use crate::name::Name;
use crate::state::JobState;

/// The unfinished jobs of each lane, by sequence number. The first job is the head of the lane. A
/// lane without unfinished jobs has no entry.
#[derive(Clone, Default)]
pub(super) struct Lanes(HashMap<Lane, BTreeMap<i64, JobId>>);

/// Identifies a lane by the names of its queue and of the lane.
type Lane = (Name, Name);

fn lane_of(job: &JobRecord) -> Option<Lane> {
    let lane = job.spec.lane.clone()?;
    Some((job.spec.route.queue.clone(), lane))
}

impl Lanes {
    /// Adds a job at the end of its lane. Returns `Pending` if the job is the head of the lane or
    /// has no lane, and otherwise `Blocked`.
    pub(super) fn enter(&mut self, job: &JobRecord) -> JobState {
        let Some(lane) = lane_of(job) else {
            return JobState::Pending;
        };
        let members = self.0.entry(lane).or_default();
        let last = members.last_key_value().map(|(sequence, _)| *sequence);
        let place = LanePlace::after(last.unwrap_or_default());
        members.insert(place.seq, job.id);
        place.state
    }

    /// Removes an ended job from its lane. Returns the head of the lane, if the lane still has
    /// jobs.
    pub(super) fn leave(&mut self, job: &JobRecord) -> Option<JobId> {
        let lane = lane_of(job)?;
        let members = self.0.get_mut(&lane)?;
        let place = members.iter().find(|(_, member)| **member == job.id);
        if let Some(sequence) = place.map(|(sequence, _)| *sequence) {
            members.remove(&sequence);
        }
        let head = members.first_key_value().map(|(_, head)| *head);
        if head.is_none() {
            self.0.remove(&lane);
        }
        head
    }
}
