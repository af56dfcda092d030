//! Reclaims lost claims.

use std::collections::HashSet;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, RawDocument, doc};
use mongodb::options::{FindOptions, Hint};
use ratchet_core::model::{
    HeldClaim, NodeRegistry, ReclaimEffect, ReclaimPass, ReclaimRequest, Reclaimed,
};
use ratchet_core::{JobId, JobState, StoreErrorKind};

use crate::bulk::Statement;
use crate::clock::Now;
use crate::connection::Tx;
use crate::ends::{is_followed, require_untied};
use crate::error::Result;
use crate::pipelines;
use crate::row;
use crate::store::{MongoStore, pause};

/// Maximum number of tries to reclaim a claim in a transaction, within one pass.
const TRIES: u32 = 12;

/// A lost claim, and how to reclaim it.
struct Lost {
    /// Filter that matches only if the claim has not changed since this process judged it as lost.
    filter: Document,
    effect: ReclaimEffect,
    /// Whether the claim still names a node. If not, an earlier pass has removed the node.
    has_owner: bool,
    /// Whether reclaiming ends a job on whose end other jobs or a batch may depend.
    followed: bool,
    reclaimed: Reclaimed,
}

impl Lost {
    fn statement(&self, call: ObjectId, now: Now) -> Statement {
        let pipeline = if self.effect.is_exhausted() {
            pipelines::give_up(self.effect, call)
        } else {
            pipelines::take_back(self.reclaimed.token.seq, self.effect, call, now)
        };
        Statement::new(self.filter.clone(), pipeline)
    }
}

impl MongoStore {
    /// Reclaims the lost claims that this pass chooses, in order of job id.
    ///
    /// This process decides with the rules of the core which claims are lost. Each write takes
    /// effect only if the claim has not changed since that decision.
    pub(crate) async fn reclaim_jobs(&self, request: &ReclaimRequest) -> Result<Vec<Reclaimed>> {
        let side = self.main();
        // Read the time before the nodes. In the opposite order, time could pass between the two
        // reads, and a node that sends a heartbeat in between could look silent.
        let now = self.millis(side).await?;
        let (nodes, _) = self.all_nodes(&mut side.plain(), side).await?;
        let nodes = NodeRegistry::new(&nodes);
        let mut pass = ReclaimPass::of(request);
        for row in self.running_jobs().await? {
            match judge(&row, &nodes, request, now) {
                Ok(Some(lost)) => pass.add(lost.reclaimed.token.job, lost.has_owner, lost),
                Ok(None) => {}
                // An unreadable claim does not block the others.
                Err(error) => tracing::warn!(%error, "skipped a running claim that cannot be read"),
            }
        }
        let lost = pass.chosen();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let (followed, others): (Vec<&Lost>, Vec<&Lost>) =
            lost.iter().partition(|one| one.followed);
        let mut taken = HashSet::new();
        if !others.is_empty() {
            taken.extend(self.take_back(&mut side.plain(), &others).await?);
        }
        for one in followed {
            taken.extend(self.take_back_followed(one).await?);
        }
        let reclaimed = lost.into_iter().map(|lost| lost.reclaimed);
        Ok(reclaimed
            .filter(|reclaimed| taken.contains(&reclaimed.token.job))
            .collect())
    }

    /// Reclaims a claim in a transaction. Used if the job ends with the claim, and other jobs or a
    /// batch may depend on this end. If every try of the transaction conflicts, returns `None`, and
    /// the next pass tries again.
    async fn take_back_followed(&self, one: &Lost) -> Result<Option<JobId>> {
        for tries in 1..=TRIES {
            let mut tx = self.begin(self.main()).await?;
            let done = self.take_back_inside(&mut tx, one).await;
            match tx.finish(done).await {
                Err(failure) if failure.kind == StoreErrorKind::Contention => {
                    tokio::time::sleep(pause(tries)).await;
                }
                done => return done,
            }
        }
        Ok(None)
    }

    async fn take_back_inside(&self, tx: &mut Tx<'_>, one: &Lost) -> Result<Option<JobId>> {
        let job = one.reclaimed.token.job;
        let held = self.held(tx, &[job]).await?.remove(&job);
        let (Some(held), false) = (held, self.take_back(tx, &[one]).await?.is_empty()) else {
            return Ok(None);
        };
        self.leave_lanes(tx, held.lane.into_iter().collect())
            .await?;
        let end = held.ties.end(job, one.effect.state, None);
        self.follow(tx, vec![end], Vec::new()).await?;
        Ok(Some(job))
    }

    /// Reclaims the claims in `lost` that have not changed since they were judged as lost. Returns
    /// the jobs whose claims this call has reclaimed.
    async fn take_back(&self, on: &mut Tx<'_>, lost: &[&Lost]) -> Result<HashSet<JobId>> {
        let side = self.main();
        let call = ObjectId::new();
        let now = self.now(side).await?;
        let statements = lost.iter().map(|lost| lost.statement(call, now)).collect();
        let matched = on.bulk(&side.jobs, statements).await?;
        let jobs: Vec<JobId> = lost.iter().map(|lost| lost.reclaimed.token.job).collect();
        if usize::try_from(matched) == Ok(lost.len()) {
            return Ok(jobs.into_iter().collect());
        }
        let done = doc! {
            "_id": { "$in": pipelines::ids(&jobs) },
            "$or": [{ "history.by": call }, { "claim": call }],
        };
        let only = row::fields(doc! { "_id": 1 });
        let rows = on.find(&side.jobs, done, only).await?;
        Ok(row::job_ids(&rows).into_iter().collect())
    }

    /// Reads all running jobs, with the fields that show whether a claim is lost. Uses index
    /// `running`.
    async fn running_jobs(&self) -> Result<Vec<mongodb::bson::RawDocumentBuf>> {
        let side = self.main();
        let fields = doc! {
            "claim_seq": 1, "crash_count": 1, "cancel_requested": 1, "claimed_at": 1,
            "last_report": 1, "node": 1, "timeout": 1, "stall_timeout": 1, "lane": 1,
            "children": 1, "batch": 1,
        };
        // The filter contains no key of the index. So without the hint, the server would scan all
        // jobs.
        let options = FindOptions::builder()
            .projection(fields)
            .hint(Hint::Name("running".to_owned()))
            .build();
        let running = doc! { "state": pipelines::code(JobState::Running) };
        side.plain().find(&side.jobs, running, options).await
    }
}

/// Decides whether the claim of a running job is lost. Returns how to reclaim it, or `None` if it
/// is not lost.
fn judge(
    row: &RawDocument,
    nodes: &NodeRegistry<'_>,
    request: &ReclaimRequest,
    now: i64,
) -> Result<Option<Lost>> {
    let node = row::node_id(row, "node").ok().flatten();
    let last_report = row::optional_int(row, "last_report")?;
    let cancel = row::flag(row, "cancel_requested");
    let claim = HeldClaim {
        owner: nodes.owner(node),
        claimed_at: row::optional_int(row, "claimed_at")?,
        last_report,
        timeout: row::duration(row, "timeout").ok().flatten(),
        stall_timeout: row::duration(row, "stall_timeout").ok().flatten(),
        crash_count: row::count(row, "crash_count").ok(),
        cancel_requested: cancel,
    };
    let Some(effect) = request.judge(&claim, now) else {
        return Ok(None);
    };
    let token = row::token(row)?;
    let mut filter = pipelines::held(token);
    let some_or_null = |value: Option<Bson>| value.unwrap_or(Bson::Null);
    filter.insert("node", some_or_null(node.map(row::id)));
    filter.insert("last_report", some_or_null(last_report.map(Bson::from)));
    filter.insert(
        "cancel_requested",
        some_or_null(cancel.then_some(Bson::Boolean(true))),
    );
    if let Ok(count) = row::int(row, "crash_count") {
        filter.insert("crash_count", count);
    }
    let waited_for = is_followed(row);
    let ends = effect.state.is_terminal();
    if ends && !waited_for {
        require_untied(&mut filter);
    }
    Ok(Some(Lost {
        filter,
        effect,
        has_owner: node.is_some(),
        followed: ends && waited_for,
        reclaimed: effect.reclaimed(token),
    }))
}
