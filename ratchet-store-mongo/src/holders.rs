//! Changes the jobs that have the unique keys of new jobs.

use mongodb::bson::{Bson, Document, doc};
use ratchet_core::model::{HolderChange, KeyHolder, TakenKeys, payload_version_to_stored};
use ratchet_core::{JobId, JobState};

use crate::connection::Tx;
use crate::error::{Failure, Result};
use crate::links::Linked;
use crate::pipelines::{self, code, ids, literal};
use crate::row;
use crate::store::MongoStore;

impl MongoStore {
    /// Reads the jobs that have unique keys of new jobs, if an enqueue may change them. Adds them
    /// to `taken`.
    ///
    /// # Errors
    /// Returns `Contention` if one of the jobs no longer has its key.
    pub(crate) async fn find_holders(
        &self,
        on: &mut Tx<'_>,
        jobs: &[JobId],
        taken: &mut TakenKeys<'_>,
    ) -> Result<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let these = doc! { "_id": { "$in": ids(jobs) }, "live_key": { "$exists": true } };
        let only = doc! { "state": 1, "route": 1, "queue": 1, "run_at": 1, "created_at": 1 };
        let found = on.find(&self.main().jobs, these, row::fields(only)).await?;
        if found.len() < jobs.len() {
            return Err(changed());
        }
        for row in &found {
            let number: i64 = row::int(row, "route")?;
            if number > i64::from(self.routes().seen()) {
                self.routes().refresh(self.main()).await?;
            }
            if let Some(route) = self.routes().get(number, row::queue(row)) {
                let state = JobState::from_code(row::int(row, "state")?)?;
                let (run_at, created_at) = (row::int(row, "run_at")?, row::int(row, "created_at")?);
                let job = row::job_id(row, "_id")?;
                let holder = KeyHolder::new(job, state, route.kind, run_at, created_at);
                taken.holder(holder);
            }
        }
        Ok(())
    }

    /// Changes the jobs that have unique keys of new jobs. If another call has changed one of them
    /// since this transaction began, the server ends the transaction.
    pub(crate) async fn change_holders(
        &self,
        tx: &mut Tx<'_>,
        changes: &[HolderChange],
        linked: &Linked<'_>,
    ) -> Result<()> {
        for change in changes {
            let (filter, mut set, unset) = statement(change);
            if linked.is_parent(change.job()) {
                // Such a job ends with a look at those that wait for it. [link.release]
                set.insert("children", true);
            }
            let update = vec![doc! { "$set": set }, doc! { "$unset": unset }];
            if tx.update_one(&self.main().jobs, filter, update).await? != 1 {
                return Err(changed());
            }
        }
        Ok(())
    }
}

/// Returns the filter of a change, and the fields that the change sets and removes. The filter
/// compares what the table of [`OnConflict`](ratchet_core::OnConflict) has decided from.
/// [keys.replace] [keys.debounce] [keys.follow] [keys.restart]
fn statement(change: &HolderChange) -> (Document, Document, Vec<&'static str>) {
    let mut filter = doc! {
        "_id": row::id(change.job()),
        "live_key": { "$exists": true },
    };
    match change {
        HolderChange::Replace {
            payload,
            payload_version,
            run_at,
            expires_at,
            ..
        } => {
            let waiting = [JobState::Pending, JobState::Blocked, JobState::Paused];
            let waiting: Vec<Bson> = waiting.map(|state| code(state).into()).into();
            filter.insert("state", doc! { "$in": waiting });
            let mut set = pipelines::moving("run_at", Bson::Int64(*run_at));
            set.insert("payload", literal(payload.as_str()));
            let mut unset = vec!["checkpoint", "progress"];
            match payload_version_to_stored(*payload_version) {
                Some(version) => drop(set.insert("payload_version", version)),
                None => unset.push("payload_version"),
            }
            match expires_at {
                Some(expires_at) => drop(set.insert("expires_at", *expires_at)),
                None => unset.push("expires_at"),
            }
            (filter, set, unset)
        }
        HolderChange::GiveUp { cancel, .. } => {
            filter.insert("state", code(JobState::Running));
            // The new job waits for this one.
            let mut set = doc! { "children": true };
            if *cancel {
                set.insert("cancel_requested", true);
            }
            (filter, set, vec!["unique_key", "live_key"])
        }
    }
}

fn changed() -> Failure {
    Failure::contention("the holder of a unique key changed during the call")
}
