//! The lineage of a job.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use axum::Json;
use axum::extract::State;
use ratchet_core::JobId;
use ratchet_core::limits::MAX_BATCH;
use ratchet_core::model::{JobRecord, Link, Parent};
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{self, Id};
use super::jobs::no_such_job;
use super::table::{Route, get};
use crate::api::Api;
use crate::extract::{Path, Query};
use crate::problem::{Code, Problem};
use crate::view::{Edge, Graph, GraphNode};

/// How many jobs and batches are shown unless told otherwise.
const NODES: usize = 100;

pub(super) fn routes() -> Vec<Route> {
    vec![
        get("/api/jobs/{id}/graph", graph)
            .reads()
            .says("What a job waits, or waited, for and who waits for it, as far as the limit goes")
            .part::<Id>("id")
            .query::<GraphQuery>()
            .ok::<Graph>("The jobs and batches, and the links between them")
            .refuses(&[Code::NotFound, Code::Unavailable]),
    ]
}

/// The parameters of a graph.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GraphQuery {
    /// The most jobs and batches to show, those nearest to the job; 100 unless said.
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
    let job = api.client().job(id).await?.ok_or_else(no_such_job)?;
    let mut walk = Walk::new(id, limit);
    if api.client().store().workflows().is_some() {
        walk.run(&api).await?;
    }
    walk.draw(&api, job).await.map(Json)
}

/// A walk from a job outwards, in both directions, the nearest first.
struct Walk {
    limit: usize,
    /// Those that were found, in that order.
    found: Vec<Parent>,
    known: BTreeSet<Parent>,
    open: VecDeque<Parent>,
    /// Each link once, by who waits and what for.
    links: Vec<Link>,
    drawn: BTreeSet<(JobId, Parent, String)>,
    truncated: bool,
}

impl Walk {
    fn new(job: JobId, limit: usize) -> Self {
        let job = Parent::Job(job);
        Self {
            limit,
            found: vec![job],
            known: BTreeSet::from([job]),
            open: VecDeque::from([job]),
            links: Vec::new(),
            drawn: BTreeSet::new(),
            truncated: false,
        }
    }

    async fn run(&mut self, api: &Api) -> Result<(), Problem> {
        let client = api.client();
        while let Some(at) = self.open.pop_front() {
            if let Parent::Job(job) = at {
                for link in client.parents_of(job).await? {
                    let parent = link.after.parent();
                    self.take(parent, link);
                }
            }
            // One more than fit; a full page may not be the last.
            let asked = (self.limit + 1).min(MAX_BATCH);
            let children = client.children_of(at, asked, None).await?;
            self.truncated |= children.len() == asked;
            for link in children {
                self.take(Parent::Job(link.child), link);
            }
        }
        Ok(())
    }

    /// Takes a link up, and who is at its other end, if there is room.
    fn take(&mut self, other: Parent, link: Link) {
        if !self.known.contains(&other) {
            if self.found.len() == self.limit {
                self.truncated = true;
                return;
            }
            self.known.insert(other);
            self.found.push(other);
            self.open.push_back(other);
        }
        let key = (link.child, link.after.parent(), link.after.to_stored());
        if self.drawn.insert(key) {
            self.links.push(link);
        }
    }

    /// Reads the jobs that were found and makes the picture.
    async fn draw(self, api: &Api, first: JobRecord) -> Result<Graph, Problem> {
        let others: Vec<JobId> = (self.found.iter().skip(1))
            .filter_map(|found| match found {
                Parent::Job(job) => Some(*job),
                Parent::Batch(_) => None,
            })
            .collect();
        let mut jobs = BTreeMap::from([(first.id, first)]);
        if !others.is_empty() {
            let read = api.client().outlines(&others).await?;
            jobs.extend(read.into_iter().flatten().map(|job| (job.id, job)));
        }
        let node = |found: &Parent| match found {
            Parent::Batch(batch) => GraphNode::batch(*batch),
            Parent::Job(id) => {
                let job = jobs.get(id);
                GraphNode::job(*id, job.map(|job| (&job.spec.route.kind, job.state)))
            }
        };
        Ok(Graph {
            nodes: self.found.iter().map(node).collect(),
            edges: self.links.iter().map(Edge::from).collect(),
            truncated: self.truncated,
        })
    }
}
