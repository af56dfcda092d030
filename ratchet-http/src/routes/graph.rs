//! The route of a job's dependency graph.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use ratchet_core::limits::MAX_BATCH;
use ratchet_core::model::{Detail, JobRecord, Link, Parent};
use ratchet_core::{Client, JobId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{self, Id};
use super::jobs::no_such_job;
use super::table::{Route, get};
use crate::api::Api;
use crate::extract::{Path, Query};
use crate::problem::{Code, Problem};
use crate::view::{Edge, Graph, GraphNode};

/// The default maximum number of jobs and batches in a graph.
const NODES: usize = 100;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/jobs/{id}/graph", graph)
            .reads()
            .says(
                "Returns the jobs and batches that a job waits for, and the jobs that wait for it, up to \
                 a limit",
            )
            .part::<Id>("id")
            .query::<GraphQuery>()
            .ok::<Graph>("The jobs and batches, and the links between them")
            .refuses(&[Code::NotFound, Code::Unavailable]),
    ]
}

/// The query parameters of a request for a graph.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GraphQuery {
    /// The maximum number of jobs and batches in the graph; 100 by default. Those nearest to the
    /// job are kept.
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

async fn graph(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<GraphQuery>,
) -> Result<Json<Graph>, Problem> {
    let id: JobId = inputs::id("id", &id)?;
    let limit = match query.limit {
        None => NODES.min(api.limits().page),
        asked => inputs::page(&api, asked)?,
    };
    let job = api
        .client()
        .jobs(&[id], Detail::Outline)
        .await?
        .pop()
        .flatten();
    let job = job.ok_or_else(no_such_job)?;
    let mut walk = Walk::new(job, limit);
    if api.client().store().workflows().is_some() {
        walk.run(api.client()).await?;
    }
    Ok(Json(walk.draw()))
}

/// A breadth-first search from a job, in both directions.
///
/// For each distance from the job, one call of the store reads all jobs and one call reads all of
/// their parents. Children are read with one call for each job or batch.
struct Walk {
    limit: usize,
    /// The jobs and batches that were found, nearest to the job first.
    found: Vec<Parent>,
    /// The number of entries at the beginning of `found` that have been visited.
    behind: usize,
    known: BTreeSet<Parent>,
    jobs: BTreeMap<JobId, JobRecord>,
    /// The links that were found.
    links: Vec<Link>,
    /// The keys of `links` (child, parent and condition), which prevent duplicates.
    drawn: BTreeSet<(JobId, Parent, String)>,
    truncated: bool,
}

impl Walk {
    fn new(job: JobRecord, limit: usize) -> Self {
        let first = Parent::Job(job.id);
        Self {
            limit,
            found: vec![first],
            behind: 0,
            known: BTreeSet::from([first]),
            jobs: BTreeMap::from([(job.id, job)]),
            links: Vec::new(),
            drawn: BTreeSet::new(),
            truncated: false,
        }
    }

    async fn run(&mut self, client: &Client) -> Result<(), Problem> {
        while self.behind < self.found.len() {
            let near = self.found[self.behind..].to_vec();
            self.behind = self.found.len();
            self.read_jobs(client, &near).await?;
            let mut parents = self.parents(client, &near).await?;
            for at in near {
                if let Parent::Job(job) = at {
                    for link in parents.remove(&job).unwrap_or_default() {
                        self.take(link.after.parent(), link);
                    }
                }
                // No more jobs fit, so children are not read. The links between the jobs that were
                // found are complete nevertheless: each link is also found among the parents of its
                // child.
                if self.truncated && self.found.len() == self.limit {
                    continue;
                }
                // Read one child more than fits, to learn whether children are left out.
                let asked = (self.limit + 1).min(MAX_BATCH);
                let children = client.children_of(at, asked, None).await?;
                self.truncated |= children.len() == asked;
                for link in children {
                    self.take(Parent::Job(link.child), link);
                }
            }
        }
        Ok(())
    }

    /// Reads the jobs in `near` that have not been read yet. Skips batches and deleted jobs.
    async fn read_jobs(&mut self, client: &Client, near: &[Parent]) -> Result<(), Problem> {
        let job = |found: &Parent| match found {
            Parent::Job(job) => Some(*job),
            Parent::Batch(_) => None,
        };
        let jobs = near.iter().filter_map(job);
        let unread: Vec<JobId> = jobs.filter(|job| !self.jobs.contains_key(job)).collect();
        if !unread.is_empty() {
            let read = client.jobs(&unread, Detail::Outline).await?;
            let read = read.into_iter().flatten();
            self.jobs.extend(read.map(|job| (job.id, job)));
        }
        Ok(())
    }

    /// Returns the links from the jobs in `near` to their parents, grouped by job.
    async fn parents(
        &self,
        client: &Client,
        near: &[Parent],
    ) -> Result<BTreeMap<JobId, Vec<Link>>, Problem> {
        let waits = |found: &Parent| match found {
            Parent::Job(job) => {
                let known = self.jobs.get(job);
                known
                    .is_some_and(|job| !job.spec.after.is_empty())
                    .then_some(*job)
            }
            Parent::Batch(_) => None,
        };
        let waiting: Vec<JobId> = near.iter().filter_map(waits).collect();
        if waiting.is_empty() {
            return Ok(BTreeMap::new());
        }
        let links = client.parents_of_all(&waiting).await?;
        Ok(waiting.into_iter().zip(links).collect())
    }

    /// Adds a link, and `other`, the job or batch at the other end of the link. Adds neither if
    /// `other` would exceed the limit.
    fn take(&mut self, other: Parent, link: Link) {
        if !self.known.contains(&other) {
            if self.found.len() == self.limit {
                self.truncated = true;
                return;
            }
            self.known.insert(other);
            self.found.push(other);
        }
        let key = (link.child, link.after.parent(), link.after.to_stored());
        if self.drawn.insert(key) {
            self.links.push(link);
        }
    }

    /// Returns the graph of the jobs, batches and links that were found.
    fn draw(&self) -> Graph {
        let node = |found: &Parent| match found {
            Parent::Batch(batch) => GraphNode::batch(*batch),
            Parent::Job(id) => {
                let job = self.jobs.get(id);
                GraphNode::job(*id, job.map(|job| (&job.spec.route.kind, job.state)))
            }
        };
        Graph {
            nodes: self.found.iter().map(node).collect(),
            edges: self.links.iter().map(Edge::from).collect(),
            truncated: self.truncated,
        }
    }
}
