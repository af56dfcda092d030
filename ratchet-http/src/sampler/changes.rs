//! Finds jobs that are new or have changed since the last read: among the newest jobs, and among
//! unfinished jobs of earlier reads.

use std::collections::BTreeMap;

use ratchet_core::model::{Detail, JobFilter, JobPage, JobRecord, PageRequest};
use ratchet_core::{Client, JobId, JobState, Result};

/// Number of the newest jobs that each read returns.
const NEWEST: usize = 50;
/// Number of the newest jobs that a read returns if the newest [`NEWEST`] jobs are all new. It is
/// also the maximum number of changed jobs in one event.
pub(super) const MOST: usize = 1_000;
/// The maximum number of unfinished jobs that are read again and again until they end.
const FOLLOWED: usize = 500;

/// Finds changed jobs by comparing them with the fields that earlier reads returned.
#[derive(Debug, Default)]
pub(super) struct Changes {
    told: BTreeMap<JobId, Told>,
    newest: Option<JobId>,
    looked: bool,
}

/// The fields of a job that are compared with an earlier read. If one of them changes, the job is
/// sent as an update.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    state: JobState,
    claim_seq: u64,
    attempts: u32,
    cancel_requested: bool,
    percent: Option<u8>,
}

impl From<&JobRecord> for Told {
    fn from(job: &JobRecord) -> Self {
        Self {
            state: job.state,
            claim_seq: job.claim_seq,
            attempts: job.attempts,
            cancel_requested: job.cancel_requested,
            percent: job.progress.as_ref().map(|progress| progress.percent),
        }
    }
}

/// The jobs that are new or have changed.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) jobs: Vec<JobRecord>,
    /// How many changed jobs are missing in `jobs`. The actual number may be higher.
    pub(super) dropped: usize,
}

impl Changes {
    /// Returns the newest job that was ever read.
    pub(super) fn newest(&self) -> Option<JobId> {
        self.newest
    }

    /// Reads the newest jobs again, and also unfinished jobs of earlier reads. Returns the jobs
    /// that are new or have changed. The first call returns no jobs.
    pub(super) async fn look(&mut self, client: &Client) -> Result<Found> {
        let first = !std::mem::replace(&mut self.looked, true);
        let all = JobFilter::all();
        let mut page = client.list(&all, &outlines(NEWEST)).await?;
        let mut overran = false;
        if !first && self.all_are_new(&page) && page.next.is_some() {
            page = client.list(&all, &outlines(MOST)).await?;
            overran = self.all_are_new(&page) && page.next.is_some();
        }
        let listed: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
        let followed: Vec<JobId> = self
            .told
            .iter()
            .filter(|(_, told)| !told.state.is_terminal())
            .map(|(id, _)| *id)
            .filter(|id| !listed.contains(id))
            .collect();
        let again = match followed.is_empty() {
            true => Vec::new(),
            false => client.jobs(&followed, Detail::Outline).await?,
        };
        for (id, _) in followed.iter().zip(&again).filter(|(_, job)| job.is_none()) {
            self.told.remove(id);
        }
        let mut found = Found {
            jobs: self.changed(page.jobs.into_iter().chain(again.into_iter().flatten())),
            dropped: usize::from(overran),
        };
        if first {
            found.jobs.clear();
        }
        if found.jobs.len() > MOST {
            found.dropped += found.jobs.len() - MOST;
            found.jobs.truncate(MOST);
        }
        Ok(found)
    }

    /// Returns whether every job of the page is newer than all jobs that were read before.
    fn all_are_new(&self, page: &JobPage) -> bool {
        let oldest = page.jobs.last().map(|job| job.id);
        oldest > self.newest
    }

    /// Returns the jobs that are new or differ from their stored fields, and stores the fields of
    /// all given jobs.
    fn changed(&mut self, jobs: impl Iterator<Item = JobRecord>) -> Vec<JobRecord> {
        let changed: Vec<JobRecord> = jobs
            .filter(|job| {
                let told = Told::from(job);
                self.newest = self.newest.max(Some(job.id));
                self.told.insert(job.id, told.clone()) != Some(told)
            })
            .collect();
        self.forget();
        changed
    }

    /// Deletes the stored fields of older jobs. Keeps those of the newest [`FOLLOWED`] unfinished
    /// jobs and of the newest [`MOST`] ended jobs, because a read lists at most [`MOST`] jobs.
    fn forget(&mut self) {
        let (mut unfinished, mut ended) = (0, 0);
        let mut keep = BTreeMap::new();
        while let Some((id, told)) = self.told.pop_last() {
            let (count, most) = if told.state.is_terminal() {
                (&mut ended, MOST)
            } else {
                (&mut unfinished, FOLLOWED)
            };
            *count += 1;
            if *count <= most {
                keep.insert(id, told);
            }
        }
        self.told = keep;
    }
}

fn outlines(limit: usize) -> PageRequest {
    PageRequest::first(limit).detail(Detail::Outline)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratchet_core::{MemoryStore, NewJob, Ratchet};

    use super::*;

    async fn enqueue(client: &Client, count: usize) -> Vec<JobId> {
        let jobs: Vec<NewJob> = (0..count).map(|_| NewJob::new("a", &1)).collect();
        let enqueued = client.enqueue_all(&jobs).await.unwrap();
        enqueued.iter().map(|one| one.id()).collect()
    }

    #[tokio::test]
    async fn what_is_new_or_changed_is_told_once() {
        let client = Ratchet::client(Arc::new(MemoryStore::new()));
        let old = enqueue(&client, 1).await;
        let mut changes = Changes::default();
        assert!(changes.look(&client).await.unwrap().jobs.is_empty());
        let new = enqueue(&client, 2).await;
        let ids = |found: &Found| found.jobs.iter().map(|job| job.id).collect::<Vec<_>>();
        let found = changes.look(&client).await.unwrap();
        assert_eq!(ids(&found), [new[1], new[0]]);
        assert!(changes.look(&client).await.unwrap().jobs.is_empty());
        client.cancel(old[0]).await.unwrap();
        let found = changes.look(&client).await.unwrap();
        assert_eq!(ids(&found), old);
        assert!(changes.look(&client).await.unwrap().jobs.is_empty());
    }

    #[tokio::test]
    async fn a_job_is_followed_to_its_end_and_the_flood_is_bounded() {
        let client = Ratchet::client(Arc::new(MemoryStore::new()));
        let mut changes = Changes::default();
        enqueue(&client, 1).await;
        changes.look(&client).await.unwrap();
        let first = enqueue(&client, 1).await;
        changes.look(&client).await.unwrap();
        enqueue(&client, 200).await;
        let found = changes.look(&client).await.unwrap();
        assert_eq!((found.jobs.len(), found.dropped), (200, 0));
        client.cancel(first[0]).await.unwrap();
        let found = changes.look(&client).await.unwrap();
        assert_eq!(
            found.jobs.len(),
            1,
            "expected the job to be followed although it is not among the newest jobs"
        );
        enqueue(&client, 5_000).await;
        let found = changes.look(&client).await.unwrap();
        assert_eq!((found.jobs.len(), found.dropped), (MOST, 1));
        assert!(changes.told.len() <= MOST + FOLLOWED);
    }
}
