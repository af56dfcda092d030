//! Reads links, batches and signals for display.

use std::collections::HashMap;

use ratchet_core::model::{After, JobRecord, Link, LinkState, Parent, SignalRecord, SignalWait};
use ratchet_core::time::from_millis;
use ratchet_core::{InvalidInput, JobId};
use uuid::Uuid;

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::Result;
use crate::row;
use crate::store::SqlStore;

impl<D: Dialect> SqlStore<D> {
    /// Reads the links, batches and signals of the jobs `linked`, and adds them to the records in
    /// `jobs`. Used to display jobs.
    pub(crate) async fn show_links(
        &self,
        on: &mut impl Run<D>,
        linked: &[Uuid],
        jobs: &mut HashMap<JobId, JobRecord>,
    ) -> Result<()> {
        let sql = self.sql();
        let mut problems = Vec::new();
        for row in on.rows(sql.links_of.query().bind(linked)).await? {
            let link = StoredLink::read(&row)?;
            match (jobs.get_mut(&link.child), link.after) {
                (Some(job), Ok(after)) => job.spec.after.push(after),
                (_, Err(problem)) => problems.push((link.child, problem)),
                (None, _) => {}
            }
        }
        for row in on.rows(sql.batches_of.query().bind(linked)).await? {
            if let Some(job) = jobs.get_mut(&row::job_id(&row, 0)?) {
                job.spec.batch = Some(row.try_get::<Uuid>(1)?.into());
            }
        }
        for row in on.rows(sql.signals_of.query().bind(linked)).await? {
            let signal = StoredSignal::read(&row)?;
            if let Some(job) = jobs.get_mut(&signal.job) {
                job.signal = Some(signal.record);
                match signal.wait {
                    Ok(wait) => job.spec.signal = Some(wait),
                    Err(problem) => problems.push((signal.job, problem)),
                }
            }
        }
        for (job, problem) in problems {
            if let Some(job) = jobs.get_mut(&job) {
                job.last_error
                    .get_or_insert_with(|| problem.of_stored_job());
            }
        }
        Ok(())
    }

    /// Returns the links of each job to its parents, in the order of `jobs`.
    pub(crate) async fn read_parents(&self, jobs: &[JobId]) -> Result<Vec<Vec<Link>>> {
        let ids: Vec<Uuid> = jobs.iter().map(JobId::as_uuid).collect();
        let find = self.sql().links_of.query().bind(&ids);
        let mut found: HashMap<JobId, Vec<Link>> = HashMap::new();
        for link in links(&self.lease().await?.rows(find).await?)? {
            found.entry(link.child).or_default().push(link);
        }
        let of = |job: &JobId| found.get(job).cloned().unwrap_or_default();
        Ok(jobs.iter().map(of).collect())
    }

    /// Returns at most `limit` links between a parent and its children, in order of the children's
    /// ids. Returns only links of children whose ids are greater than `after`.
    pub(crate) async fn read_children(
        &self,
        parent: Parent,
        limit: usize,
        after: Option<JobId>,
    ) -> Result<Vec<Link>> {
        let find = self.sql().children_of.query();
        let find = find
            .bind(Uuid::from_bytes(*parent.as_bytes()))
            .bind(i16::from(parent.code()))
            .bind(after.map_or(Uuid::nil(), |id| id.as_uuid()))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        links(&self.lease().await?.rows(find).await?)
    }
}

/// Decodes the links in these rows. Logs and skips links whose conditions cannot be read.
fn links(rows: &[impl Row]) -> Result<Vec<Link>> {
    let mut links = Vec::with_capacity(rows.len());
    for row in rows {
        let link = StoredLink::read(row)?;
        match link.after {
            Ok(after) => links.push(Link::new(link.child, after, link.state)),
            Err(error) => tracing::warn!(job = %link.child, %error, "skipped a stored link that \
                cannot be read"),
        }
    }
    Ok(links)
}

/// A link, as read from a row of the statement `links_of`. If only the condition cannot be read,
/// `after` is an error and the other fields are valid.
pub(crate) struct StoredLink {
    pub(crate) child: JobId,
    pub(crate) place: u32,
    pub(crate) parent: Parent,
    state: LinkState,
    pub(crate) after: Result<After, InvalidInput>,
}

impl StoredLink {
    pub(crate) fn read(row: &impl Row) -> Result<Self> {
        let parent: Uuid = row.try_get(3)?;
        let kind: i16 = row.try_get(2)?;
        let parent = Parent::from_stored(kind.into(), *parent.as_bytes())?;
        let place: i32 = row.try_get(1)?;
        Ok(Self {
            child: row::job_id(row, 0)?,
            place: row::count(place, "place")?,
            parent,
            state: LinkState::from_code(row.try_get::<i16>(4)?.into())?,
            after: row::text(row, 5, "condition")
                .and_then(|text| After::from_stored(parent, text.unwrap_or_default())),
        })
    }
}

/// A signal that a job waits for, as read from a row of the statement `signals_of`.
pub(crate) struct StoredSignal {
    pub(crate) job: JobId,
    pub(crate) wait: Result<SignalWait, InvalidInput>,
    pub(crate) too_late: bool,
    pub(crate) record: SignalRecord,
    state: i16,
}

impl StoredSignal {
    pub(crate) fn read(row: &impl Row) -> Result<Self> {
        let mut record = SignalRecord::new(from_millis(row.try_get(3)?));
        if let (Some(at), Some(payload)) = (row.try_get(5)?, row::json(row, 6)) {
            record = record.delivered(from_millis(at), payload);
        }
        Ok(Self {
            job: row::job_id(row, 0)?,
            wait: wait(row),
            too_late: row.try_get(7)?,
            record,
            state: row.try_get(4)?,
        })
    }

    /// Returns whether the job is still waiting for the signal.
    pub(crate) const fn is_open(&self) -> bool {
        self.state == 0
    }
}

/// Decodes the signal that a job waits for. The first columns of the row must be the job, the key
/// of the signal and the timeout.
pub(crate) fn wait(row: &impl Row) -> Result<SignalWait, InvalidInput> {
    let missing = || InvalidInput::new("signal", "is missing");
    let key = row::name(row, 1, "signal")?.ok_or_else(missing)?;
    let timeout = row::duration(row, 2, "timeout")?.ok_or_else(missing)?;
    Ok(SignalWait::new(key, timeout))
}
