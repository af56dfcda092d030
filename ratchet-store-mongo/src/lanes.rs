//! Lanes: the order in which jobs wait for each other.
//!
//! While a lane has unfinished jobs, it has a document with the last sequence number that was
//! assigned to a job. A transaction that adds a job changes that document. A transaction that ends
//! the first job changes the next job or, if there is none, deletes the lane's document. So two
//! transactions that must not both commit change the same document, and the server lets only one of
//! them commit.
//!
//! An enqueue changes the lane's document last. If a producer is killed during an enqueue, its
//! transaction stays open until the server aborts it. Jobs in the lane can still end, unless the
//! producer was killed between the last write and the commit.

use std::collections::BTreeSet;

use mongodb::bson::doc;
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::model::{JobSpec, LanePlaces};
use ratchet_core::{JobId, JobState, Name};

use crate::bulk::MOST;
use crate::connection::Tx;
use crate::error::Result;
use crate::pipelines::{self, code};
use crate::row;
use crate::store::MongoStore;

/// Returns the key of a lane, which consists of the queue and the lane's name. A line break
/// separates them, because neither name can contain one.
pub(crate) fn key(queue: &Name, lane: &Name) -> String {
    format!("{queue}\n{lane}")
}

/// Returns the key of the job's lane, or `None` if the job has no lane.
pub(crate) fn of(spec: &JobSpec) -> Option<String> {
    let lane = spec.lane.as_ref()?;
    Some(key(&spec.route.queue, lane))
}

/// Assigns positions in lanes to new jobs. Lanes are identified by their keys.
pub(crate) type Places = LanePlaces<String>;

impl MongoStore {
    /// Reads the last assigned position of each of these lanes.
    pub(crate) async fn find_places(
        &self,
        tx: &mut Tx<'_>,
        lanes: BTreeSet<String>,
    ) -> Result<Places> {
        let mut places = Places::default();
        if lanes.is_empty() {
            return Ok(places);
        }
        let these = doc! { "_id": { "$in": lanes.iter().collect::<Vec<_>>() } };
        for lane in lanes {
            places.enter(lane, 0);
        }
        let options = FindOptions::default();
        for row in tx.find(&self.main().lanes, these, options).await? {
            let lane = row::text(&row, "_id")?.unwrap_or_default().to_owned();
            places.enter(lane, row::int(&row, "last")?);
        }
        Ok(places)
    }

    /// Stores how many positions this transaction has assigned in each lane. [lane.sequence]
    ///
    /// The write conflicts if another transaction has changed one of these lanes since this
    /// transaction read the last position in the lane.
    pub(crate) async fn keep_places(&self, tx: &mut Tx<'_>, places: Places) -> Result<()> {
        let keep = places.taken().map(|(lane, taken)| {
            doc! { "q": { "_id": lane }, "u": { "$inc": { "last": taken } }, "upsert": true }
        });
        let keep: Vec<_> = keep.collect();
        for some in keep.chunks(MOST) {
            tx.updates(&self.main().lanes, some.to_vec()).await?;
        }
        Ok(())
    }

    /// Makes the first job of each of these lanes claimable, if that job is blocked. Deletes the
    /// document of each lane that has no unfinished job. Called after jobs of these lanes ended in
    /// this transaction. [lane.promote]
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
