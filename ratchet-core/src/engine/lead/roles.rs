//! The roles in which a node may lead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use crate::client::Client;
use crate::cluster::{Election, Leadership};
use crate::id::NodeId;
use crate::model::Guard;
use crate::store::{Store, StoreFeature};

/// The role whose leader maintains the cluster: it marks silent nodes dead, takes back their
/// claims, and deletes old jobs.
pub(crate) const MAINTENANCE: &str = "maintenance";

/// A role in which the node may lead.
#[derive(Debug)]
pub(crate) struct Candidacy {
    pub(crate) leadership: Leadership,
    pub(super) election: Mutex<Election>,
    /// Held while this node does work of the role that must stop before another node may start it.
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

    /// Returns whether the role is [`MAINTENANCE`].
    pub(super) fn is_maintenance(&self) -> bool {
        self.leadership.role() == MAINTENANCE
    }

    /// Resigns the role.
    pub(crate) async fn resign(&self, client: &Client) {
        self.resign_for(None, client).await;
    }

    /// Resigns the role, and leaves it to other nodes for a while.
    pub(crate) async fn sit_out(&self, pause: Duration, client: &Client) {
        self.resign_for(Some(pause), client).await;
    }

    async fn resign_for(&self, pause: Option<Duration>, client: &Client) {
        let mut election = self.election.lock().await;
        let holder = self.leadership.lock_holder();
        let resigned = match pause {
            Some(pause) => election.sit_out(pause).await,
            None => election.resign().await,
        };
        drop(election);
        if let Err(error) = resigned {
            tracing::warn!(%error, role = %self.leadership.role(), "could not resign from a role");
        } else if let Some(holder) = holder {
            self.announce_resignation(client, holder).await;
        }
    }

    /// Informs the other candidates that this node has released the role's lock, which it acquired
    /// as `holder`. Otherwise the last beacon would keep them from reading the lock.
    pub(super) async fn announce_resignation(&self, client: &Client, holder: NodeId) {
        if self.is_maintenance() {
            client.send_beacon(holder, Duration::ZERO).await;
        }
    }
}

/// The roles in which a node may lead.
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

    /// Returns the candidacy for this role. `None` if the node may not lead in it.
    pub(crate) fn get(&self, role: &str) -> Option<&Arc<Candidacy>> {
        self.0
            .iter()
            .find(|candidacy| *candidacy.leadership.role() == role)
    }

    /// Returns the leadership in this role. `None` if the node may not lead in it.
    pub(crate) fn leadership(&self, role: &str) -> Option<&Leadership> {
        self.get(role).map(|candidacy| &candidacy.leadership)
    }

    /// Returns whether the node leads in any role.
    pub(crate) fn any_leads(&self) -> bool {
        self.0.iter().any(|one| one.leadership.is_leader())
    }

    /// Returns the guard for the writes of the maintenance leader. `None` while this node does not
    /// lead in the role, and on a store without guards. Then the node may only make writes that are
    /// safe for any node.
    pub(crate) fn maintenance_guard(&self, store: &dyn Store) -> Option<Guard> {
        let leadership = self.leadership(MAINTENANCE)?;
        let guards = leadership.is_leader() && store.lacks(StoreFeature::Guards).is_none();
        leadership.guard().filter(|_| guards)
    }

    /// Resigns every role.
    pub(crate) async fn resign(&self, client: &Client) {
        for candidacy in &self.0 {
            candidacy.resign(client).await;
        }
    }
}
