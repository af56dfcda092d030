//! Lanes: who waits for whom.
//!
//! A lane has a document while it has unfinished jobs, with the last sequence it gave. Whoever puts a
//! job into it changes that document; whoever ends the first of its jobs changes the next one, or
//! deletes the document if there is none. So two transactions that cannot both be right change the
//! same document, and the server lets only one of them through.

use std::collections::BTreeMap;

use mongodb::bson::doc;
use mongodb::options::ReadConcern;
use ratchet_core::model::JobSpec;
use ratchet_core::{JobId, JobState, Name};

use crate::connection::Tx;
use crate::error::{Failure, Result};
use crate::pipelines::{self, code};
use crate::row;
use crate::store::MongoStore;

/// The key of a lane: its queue and its name. Neither has a line break in it.
pub(crate) fn key(queue: &Name, lane: &Name) -> String {
    format!("{queue}\n{lane}")
}

/// The key of the lane of a job, if it has one.
pub(crate) fn of(spec: &JobSpec) -> Option<String> {
    let lane = spec.lane.as_ref()?;
    Some(key(&spec.route.queue, lane))
}

/// Places that are kept for new jobs, by lane.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<String, i64>);

/// A place in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) seq: i64,
    pub(crate) state: JobState,
}

impl Places {
    /// The next of the places kept in a lane. The first place of all is the head's.
    pub(crate) fn take(&mut self, lane: &str) -> Place {
        let last = self.0.get_mut(lane);
        let seq = last.map_or(1, |last| {
            *last += 1;
            *last
        });
        let state = if seq == 1 {
            JobState::Pending
        } else {
            JobState::Blocked
        };
        Place { seq, state }
    }
}

impl MongoStore {
    /// Keeps so many places in each of these lanes. [lane.sequence]
    pub(crate) async fn enter_lanes(
        &self,
        tx: &mut Tx<'_>,
        wanted: BTreeMap<String, i64>,
    ) -> Result<Places> {
        let mut places = Places::default();
        for (lane, count) in wanted {
            let lane_of = doc! { "_id": &lane };
            let keep = doc! { "$inc": { "last": count } };
            let after = tx.change(&self.main().lanes, lane_of, keep, true).await?;
            let after = after.ok_or_else(|| Failure::contention("a lane came and went"))?;
            let last = row::int(&after, "last")? - count;
            places.0.insert(lane, last);
        }
        Ok(places)
    }

    /// Lets the next job of each of these lanes be claimed, from which jobs were taken in this
    /// transaction, and forgets the lanes that are empty. [lane.promote]
    pub(crate) async fn leave_lanes(&self, tx: &mut Tx<'_>, lanes: Vec<String>) -> Result<()> {
        if lanes.is_empty() {
            return Ok(());
        }
        let side = self.main();
        let heads = pipelines::heads(side.jobs.name(), &lanes);
        let rows = tx
            .aggregate(&side.lanes, heads, ReadConcern::majority())
            .await?;
        let mut next: Vec<JobId> = Vec::new();
        let mut empty: Vec<String> = Vec::new();
        for row in rows {
            match row.get_document("head") {
                Ok(head) => {
                    if row::int(head, "state")? == i64::from(code(JobState::Blocked)) {
                        next.push(row::job_id(head, "_id")?);
                    }
                }
                Err(_) => empty.extend(row::text(&row, "_id")?.map(str::to_owned)),
            }
        }
        if !next.is_empty() {
            let blocked = doc! {
                "_id": { "$in": pipelines::ids(&next) },
                "state": code(JobState::Blocked),
            };
            let pending = doc! { "$set": { "state": code(JobState::Pending) } };
            tx.update_many(&side.jobs, blocked, pending).await?;
        }
        if !empty.is_empty() {
            let gone = doc! { "_id": { "$in": empty } };
            tx.delete_many(&side.lanes, gone).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_an_empty_lane_is_its_head() {
        let mut places = Places(BTreeMap::from([("a".to_owned(), 0), ("b".to_owned(), 7)]));
        let first = places.take("a");
        assert_eq!((first.seq, first.state), (1, JobState::Pending));
        let second = places.take("a");
        assert_eq!((second.seq, second.state), (2, JobState::Blocked));
        let behind = places.take("b");
        assert_eq!((behind.seq, behind.state), (8, JobState::Blocked));
    }
}
