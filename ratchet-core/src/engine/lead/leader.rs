//! Leadership: one loop per role of the node, which campaigns for it while the node is active.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::client::RetryDelays;
use crate::cluster::{Election, ElectionOutcome, Leadership};
use crate::engine::run::Run;
use crate::error::Result;
use crate::metrics::{self, StepDown};
use crate::model::NodeStatus;

/// The role whose leader looks after the cluster: marks silent nodes dead, takes back what they held,
/// deletes what is old.
pub(crate) const MAINTENANCE: &str = "maintenance";

/// A role that the node may lead in.
#[derive(Debug)]
pub(crate) struct Candidacy {
    pub(crate) leadership: Leadership,
    election: Mutex<Election>,
    /// Held while something runs here that no other node may run before it has stopped.
    pub(crate) in_use: Mutex<()>,
}

impl Candidacy {
    pub(crate) fn new(election: Election) -> Self {
        Self {
            leadership: election.leadership().clone(),
            election: Mutex::new(election),
            in_use: Mutex::new(()),
        }
    }

    /// Gives the role up.
    pub(crate) async fn resign(&self) {
        if let Err(error) = self.election.lock().await.resign().await {
            tracing::warn!(%error, role = %self.leadership.role(), "could not give a role up");
        }
    }

    /// Gives the role up and leaves it to others for a while.
    pub(crate) async fn sit_out(&self, pause: Duration) {
        let mut election = self.election.lock().await;
        if let Err(error) = election.sit_out(pause).await {
            tracing::warn!(%error, role = %self.leadership.role(), "could not give a role up");
        }
    }
}

/// The roles that a node may lead in.
#[derive(Debug)]
pub(crate) struct Roles(Vec<Arc<Candidacy>>);

impl Roles {
    pub(crate) fn new(elections: Vec<Election>) -> Self {
        Self(
            elections
                .into_iter()
                .map(|election| Arc::new(Candidacy::new(election)))
                .collect(),
        )
    }

    pub(crate) fn all(&self) -> &[Arc<Candidacy>] {
        &self.0
    }

    /// The candidacy for this role; none if the node may not lead in it.
    pub(crate) fn get(&self, role: &str) -> Option<&Arc<Candidacy>> {
        self.0
            .iter()
            .find(|candidacy| *candidacy.leadership.role() == role)
    }

    /// The leadership in this role; none if the node may not lead in it.
    pub(crate) fn leadership(&self, role: &str) -> Option<&Leadership> {
        self.get(role).map(|candidacy| &candidacy.leadership)
    }

    /// Whether the node leads in any role.
    pub(crate) fn any_leads(&self) -> bool {
        self.0.iter().any(|one| one.leadership.is_leader())
    }
}

/// Campaigns for as long as the node is to lead.
pub(crate) async fn run(run: Arc<Run>, candidacy: Arc<Candidacy>) {
    metrics::candidate(candidacy.leadership.role());
    let mut backoff = RetryDelays::of("leader").about(candidacy.leadership.role());
    while !run.stepping_down.is_cancelled() {
        let wait = match turn(&run, &candidacy).await {
            Ok(wait) => {
                backoff.reset();
                wait
            }
            Err(error) => {
                let delay = backoff.failed(&error, run.shared.random());
                delay.min(heartbeat(&run))
            }
        };
        tokio::select! {
            biased;
            () = run.stepping_down.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Tells those who watch when a leadership could not be renewed in time.
pub(crate) async fn watchdog(candidacy: Arc<Candidacy>) {
    candidacy.leadership.watchdog().await;
}

/// One turn, and how long to wait before the next.
async fn turn(run: &Run, candidacy: &Candidacy) -> Result<Duration> {
    let mut election = candidacy.election.lock().await;
    let leads = candidacy.leadership.is_leader();
    if run.stepping_down.is_cancelled() || (!leads && run.status() != NodeStatus::Active) {
        return Ok(heartbeat(run));
    }
    if election.is_of_another(run.node()) {
        // The node was taken for dead and has another id. What runs here stops before others lead.
        candidacy.leadership.step_down(StepDown::Superseded);
        drop(candidacy.in_use.lock().await);
    }
    let outcome = election.turn(run.node()).await?;
    if let ElectionOutcome::Elected(term) = &outcome {
        run.at_work();
        tracing::info!(node = %run.node(), role = %candidacy.leadership.role(), term = term.0, "leads");
    }
    Ok(election.next_turn(&outcome))
}

fn heartbeat(run: &Run) -> Duration {
    run.shared.config.leadership.heartbeat
}

/// Hands back, whenever the node ceases to lead, what it claimed while it led and has not begun.
pub(crate) async fn gate(run: Arc<Run>, leadership: Leadership) {
    let mut watch = leadership.watch();
    loop {
        let term = watch.elected().await;
        for pool in &run.pools {
            pool.room.notify_one();
        }
        watch.lost(term).await;
        run.hand_back_waiting();
    }
}

/// Gives every role up at once: the last thing a node does before it leaves.
pub(crate) async fn step_down(run: &Run) {
    run.stepping_down.cancel();
    for candidacy in run.shared.roles.all() {
        candidacy.resign().await;
    }
}
