//! The roles that a node may lead in.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::cluster::{Election, Leadership};
use crate::model::Guard;
use crate::store::Store;

/// The role whose leader looks after the cluster: marks silent nodes dead, takes back what they
/// held, deletes what is old.
pub(crate) const MAINTENANCE: &str = "maintenance";

/// A role that the node may lead in.
#[derive(Debug)]
pub(crate) struct Candidacy {
    pub(crate) leadership: Leadership,
    pub(super) election: Mutex<Election>,
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
            tracing::warn!(%error, role = %self.leadership.role(), "could not resign from a role");
        }
    }

    /// Gives the role up and leaves it to others for a while.
    pub(crate) async fn sit_out(&self, pause: Duration) {
        let mut election = self.election.lock().await;
        if let Err(error) = election.sit_out(pause).await {
            tracing::warn!(%error, role = %self.leadership.role(), "could not resign from a role");
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

    /// Returns the candidacy for this role; `None` if the node may not lead in it.
    pub(crate) fn get(&self, role: &str) -> Option<&Arc<Candidacy>> {
        self.0
            .iter()
            .find(|candidacy| *candidacy.leadership.role() == role)
    }

    /// Returns the leadership in this role; `None` if the node may not lead in it.
    pub(crate) fn leadership(&self, role: &str) -> Option<&Leadership> {
        self.get(role).map(|candidacy| &candidacy.leadership)
    }

    /// Whether the node leads in any role.
    pub(crate) fn any_leads(&self) -> bool {
        self.0.iter().any(|one| one.leadership.is_leader())
    }

    /// Returns the guard of what the leader of the maintenance role writes. `None` while this node
    /// does not lead in it, and on a store without guards: then only what is safe for all may be
    /// written.
    pub(crate) fn maintenance_guard(&self, store: &dyn Store) -> Option<Guard> {
        let leadership = self.leadership(MAINTENANCE)?;
        let guards = leadership.is_leader() && store.guards();
        leadership.guard().filter(|_| guards)
    }

    /// Gives every role up.
    pub(crate) async fn resign(&self) {
        for candidacy in &self.0 {
            candidacy.resign().await;
        }
    }
}
