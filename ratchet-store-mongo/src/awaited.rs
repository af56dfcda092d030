//! Finds the old jobs that have an unfinished child. Such jobs are not yet purged or archived.

use std::collections::{BTreeSet, HashSet};

use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::FindOptions;
use ratchet_core::JobId;
use ratchet_core::model::Parent;

use crate::connection::Tx;
use crate::error::Result;
use crate::links::unfinished_states;
use crate::pipelines::ids;
use crate::row;
use crate::store::MongoStore;

/// Result of searching old jobs for unfinished children.
pub(crate) struct Looked {
    /// The examined jobs that have an unfinished child.
    pub(crate) awaited: HashSet<JobId>,
    /// Number of jobs that were examined: the search examines the jobs in the given order, and may
    /// stop early.
    pub(crate) at: usize,
}

/// Maximum number of parents whose links one command reads.
const PARENTS_AT_ONCE: usize = 100;
/// Maximum number of links that one command reads, for all its parents together.
const LINKS_AT_ONCE: usize = 1_000;
/// Maximum number of links that one transaction reads before it leaves the remaining parents to the
/// next transaction. The last group of parents may exceed this limit.
const MOST_LINKS: usize = 20_000;

impl MongoStore {
    /// Returns the jobs in `jobs` that have an unfinished child. If the jobs have very many
    /// children, examines only the first few jobs. [purge.awaited] [archive.awaited]
    pub(crate) async fn awaited(&self, tx: &mut Tx<'_>, jobs: &[RawDocumentBuf]) -> Result<Looked> {
        let mut looked = Looked {
            awaited: HashSet::new(),
            at: jobs.len(),
        };
        let mut parents = Vec::new();
        for (place, row) in jobs.iter().enumerate() {
            if row::flag(row, "children") {
                parents.push((place, row::job_id(row, "_id")?));
            }
        }
        let mut links = 0;
        for some in parents.chunks(PARENTS_AT_ONCE) {
            if links >= MOST_LINKS {
                looked.at = some[0].0;
                break;
            }
            let some = some.iter().map(|(_, job)| *job).collect();
            links += self.find_awaited(tx, some, &mut looked.awaited).await?;
        }
        Ok(looked)
    }

    /// Adds the parents that have an unfinished child to `awaited`, and returns the number of links
    /// that were read. Reads the links in pages, through the index `parent`. Once a page contains
    /// an unfinished child, reads no further pages for its parent.
    ///
    /// A command that reads a page of children by id is several times faster than a `$lookup`,
    /// which starts a pipeline for each child.
    async fn find_awaited(
        &self,
        tx: &mut Tx<'_>,
        mut parents: BTreeSet<JobId>,
        awaited: &mut HashSet<JobId>,
    ) -> Result<usize> {
        let side = self.main();
        let mut links = 0;
        let mut behind: Option<(JobId, JobId)> = None;
        while !parents.is_empty() {
            let all: Vec<JobId> = parents.iter().copied().collect();
            let mut on_these = match behind {
                Some((parent, child)) if parents.contains(&parent) => doc! { "$or": [
                    { "parent": row::id(parent), "child": { "$gt": row::id(child) } },
                    { "parent": { "$in": ids(&all[1..]) } },
                ] },
                _ => doc! { "parent": { "$in": ids(&all) } },
            };
            on_these.insert("kind", i32::from(Parent::Job(all[0]).code()));
            let options = FindOptions::builder()
                .sort(doc! { "parent": 1, "child": 1 })
                .limit(i64::try_from(LINKS_AT_ONCE).unwrap_or(i64::MAX))
                .projection(doc! { "parent": 1, "child": 1 })
                .build();
            let mut page = Vec::new();
            for row in tx.find(&side.links, on_these, options).await? {
                page.push((row::job_id(&row, "parent")?, row::job_id(&row, "child")?));
            }
            links += page.len();
            let Some(last) = page.last().copied() else {
                break;
            };
            let children: Vec<JobId> = page.iter().map(|(_, child)| *child).collect();
            let unfinished = self.unfinished(tx, &children).await?;
            let held = page.iter().filter(|(_, child)| unfinished.contains(child));
            awaited.extend(held.map(|(parent, _)| *parent));
            if page.len() < LINKS_AT_ONCE {
                break;
            }
            parents.retain(|one| *one > last.0 || (*one == last.0 && !awaited.contains(one)));
            behind = Some(last);
        }
        Ok(links)
    }

    /// Returns the jobs in `jobs` that have not ended.
    async fn unfinished(&self, tx: &mut Tx<'_>, jobs: &[JobId]) -> Result<HashSet<JobId>> {
        let these = doc! { "_id": { "$in": ids(jobs) }, "state": { "$in": unfinished_states() } };
        let only = row::fields(doc! { "_id": 1 });
        let rows = tx.find(&self.main().jobs, these, only).await?;
        Ok(row::job_ids(&rows).into_iter().collect())
    }
}
