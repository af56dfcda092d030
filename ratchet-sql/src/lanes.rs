//! Locks lanes, and maintains the places of jobs in lanes.
//!
//! A transaction that adds unfinished jobs to a lane, or removes jobs from a lane, first locks the
//! row of the lane. A later statement of the transaction reads the lane. This statement sees
//! everything that was committed before the lock was acquired.

use std::collections::{BTreeMap, BTreeSet};

use ratchet_core::model::LanePlaces;
use ratchet_core::{JobId, JobState, Name};
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::Result;
use crate::row;
use crate::store::SqlStore;

/// A lane, identified by its queue and its name. To avoid deadlocks, every call locks lanes in the
/// order of this type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    queue: String,
    lane: String,
}

impl Lane {
    pub(crate) fn new(queue: &Name, lane: &Name) -> Self {
        Self {
            queue: queue.as_str().to_owned(),
            lane: lane.as_str().to_owned(),
        }
    }
}

/// Lanes that a call has locked, and the places in these lanes that the call has assigned to jobs.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Locked lanes in which the call may assign places to jobs.
    entered: LanePlaces<Lane>,
    /// Locked lanes from which the call only removes jobs.
    left: BTreeSet<Lane>,
    jobs: Vec<Uuid>,
    queues: Vec<String>,
    names: Vec<String>,
    seqs: Vec<i64>,
}

impl Places {
    /// Assigns the next place in a lane to a job. The lane must have been locked with
    /// [`SqlStore::enter_lanes`]. Returns the state in which the job waits.
    pub(crate) fn take(&mut self, job: JobId, lane: Lane) -> JobState {
        let Some(place) = self.entered.take(&lane) else {
            return JobState::Pending;
        };
        self.jobs.push(job.as_uuid());
        self.queues.push(lane.queue);
        self.names.push(lane.lane);
        self.seqs.push(place.seq);
        place.state
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Locks lanes in order, and waits for other transactions that have locked them. `lanes`
    /// contains a lane once for each job that may get a place in this lane.
    pub(crate) async fn enter_lanes(
        &self,
        on: &mut impl Run<D>,
        lanes: impl Iterator<Item = Lane>,
    ) -> Result<Places> {
        let mut wanted: BTreeMap<Lane, i64> = BTreeMap::new();
        for lane in lanes {
            *wanted.entry(lane).or_default() += 1;
        }
        let mut places = Places::default();
        if wanted.is_empty() {
            return Ok(places);
        }
        let counts: Vec<i64> = wanted.values().copied().collect();
        let queues = column(wanted.keys(), |lane| &lane.queue);
        let lanes = column(wanted.keys(), |lane| &lane.lane);
        let enter = self.sql().enter_lanes.query().table(&[
            ("queue", &queues),
            ("lane", &lanes),
            ("count", &counts),
        ]);
        for row in on.rows(enter).await? {
            let (queue, lane) = (row.try_get(0)?, row.try_get(1)?);
            let lane = Lane { queue, lane };
            let (last, count) = (row.try_get::<i64>(2)?, wanted.get(&lane).copied());
            places.entered.enter(lane, last - count.unwrap_or_default());
        }
        Ok(places)
    }

    /// Locks the lanes of the given jobs, and returns the jobs whose lanes are now locked. Skips
    /// finished jobs, and lanes that another transaction has locked.
    pub(crate) async fn lock_lanes(
        &self,
        on: &mut impl Run<D>,
        jobs: &[Uuid],
    ) -> Result<(Vec<JobId>, Places)> {
        let (mut locked, mut places) = (Vec::new(), Places::default());
        for row in on.rows(self.sql().lock_lanes.query().bind(jobs)).await? {
            locked.push(row::job_id(&row, 0)?);
            let (queue, lane) = (row.try_get(1)?, row.try_get(2)?);
            places.left.insert(Lane { queue, lane });
        }
        Ok((locked, places))
    }

    /// Returns the lane of each given job. Omits jobs that are in no lane.
    pub(crate) async fn lanes_of(
        &self,
        on: &mut impl Run<D>,
        jobs: &[Uuid],
    ) -> Result<BTreeMap<JobId, Lane>> {
        let mut lanes = BTreeMap::new();
        for row in on.rows(self.sql().lanes_of.query().bind(jobs)).await? {
            let (queue, lane) = (row.try_get(1)?, row.try_get(2)?);
            lanes.insert(row::job_id(&row, 0)?, Lane { queue, lane });
        }
        Ok(lanes)
    }

    /// Stores the places in lanes that were assigned to jobs, removes ended jobs from their lanes,
    /// and makes the new heads of the lanes claimable. The transaction must not change these lanes
    /// afterwards.
    pub(crate) async fn leave_lanes(
        &self,
        on: &mut impl Run<D>,
        places: Places,
        ended: &[Uuid],
    ) -> Result<()> {
        if !places.jobs.is_empty() {
            on.execute(self.sql().place_in_lanes.query().table(&[
                ("job", &places.jobs),
                ("queue", &places.queues),
                ("lane", &places.names),
                ("seq", &places.seqs),
            ]))
            .await?;
        }
        // If no job has ended, only one case needs work: a lane was entered and is still empty. The
        // row of such a lane is deleted.
        if places.entered.has_empty() || !ended.is_empty() {
            let lanes = places.entered.lanes().chain(&places.left);
            let queues = column(lanes.clone(), |lane| &lane.queue);
            let lanes = column(lanes, |lane| &lane.lane);
            let advance = self
                .sql()
                .advance_lanes
                .query()
                .table(&[("queue", &queues), ("lane", &lanes)])
                .bind(ended);
            on.execute(advance).await?;
        }
        Ok(())
    }
}

fn column<'a>(lanes: impl Iterator<Item = &'a Lane>, part: fn(&Lane) -> &String) -> Vec<String> {
    lanes.map(|lane| part(lane).clone()).collect()
}
