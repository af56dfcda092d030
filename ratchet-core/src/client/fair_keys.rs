//! The fair keys that have the most jobs.

use std::collections::HashMap;

use super::Client;
use crate::error::Result;
use crate::limits::{self, MAX_BATCH};
use crate::model::{Detail, FairKeyInfo, FairKeyUsage, JobFilter, JobRecord, PageRequest};
use crate::state::JobState;

impl Client {
    /// Returns the fair keys with the most running and waiting jobs, at most `limit` of them, to
    /// find out which tenant keeps a queue busy.
    ///
    /// Reads the outlines of at most 10,000 running jobs, and of the 10,000 newest jobs, in which
    /// it counts those that are pending. So it costs the same however many jobs wait, but does not
    /// see older ones; [`FairKeyUsage::complete`] says whether there are any.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ratchet::{NewJob, Ratchet};
    ///
    /// let client = Ratchet::client(ratchet::connect("memory:").await?);
    /// for tenant in ["noisy", "quiet", "noisy"] {
    ///     client.enqueue(NewJob::new("render", &1).fair_key(tenant)).await?;
    /// }
    /// let usage = client.fair_keys(10).await?;
    /// assert_eq!((usage.keys[0].key.as_str(), usage.keys[0].waiting), ("noisy", 2));
    /// assert!(usage.complete);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a limit of 0 or above [`MAX_BATCH`], or a failure
    /// of the store.
    pub async fn fair_keys(&self, limit: usize) -> Result<FairKeyUsage> {
        limits::check_limit("limit", limit)?;
        let page = PageRequest::first(MAX_BATCH).detail(Detail::Outline);
        let running = JobFilter::all().state(JobState::Running);
        let running = self.list(&running, &page).await?;
        let newest = self.list(&JobFilter::all(), &page).await?;
        let complete = running.next.is_none() && newest.next.is_none();
        let waiting = |job: &&JobRecord| job.state == JobState::Pending;
        let mut keys = HashMap::new();
        for job in &running.jobs {
            count(&mut keys, job, |info| &mut info.running);
        }
        for job in newest.jobs.iter().filter(waiting) {
            count(&mut keys, job, |info| &mut info.waiting);
        }
        let mut keys: Vec<FairKeyInfo> = keys.into_values().collect();
        keys.sort_unstable_by(|a, b| {
            let jobs = |info: &FairKeyInfo| info.running + info.waiting;
            let names = |info: &FairKeyInfo| (info.queue.clone(), info.key.clone());
            jobs(b).cmp(&jobs(a)).then_with(|| names(a).cmp(&names(b)))
        });
        keys.truncate(limit);
        Ok(FairKeyUsage { keys, complete })
    }
}

/// Counts the job for its key, if it has one.
fn count<'j>(
    keys: &mut HashMap<(&'j str, &'j str), FairKeyInfo>,
    job: &'j JobRecord,
    counter: impl Fn(&mut FairKeyInfo) -> &mut u64,
) {
    let Some(key) = &job.spec.fair_key else {
        return;
    };
    let queue = &job.spec.route.queue;
    let info = keys
        .entry((queue.as_str(), key.name().as_str()))
        .or_insert_with(|| FairKeyInfo {
            queue: queue.clone(),
            key: key.name().clone(),
            running: 0,
            waiting: 0,
        });
    *counter(info) += 1;
}
