//! Tracks which nodes have free slots, according to the last read of the nodes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::NodeId;
use crate::model::{NodeProfile, NodeRecord, NodeStatus, PoolProfile};
use crate::route::Route;
use crate::time;

/// The age at which the list of nodes is read again.
const OLD: Duration = Duration::from_secs(10);
/// The age at which the first list of nodes is read again, because nodes may have started since.
/// The age doubles with each later read, up to [`OLD`], and becomes [`OLD`] once a node was chosen.
const YOUNG: Duration = Duration::from_secs(1);
/// The age at which the list of nodes is too old to choose a node from it.
const TOO_OLD: Duration = Duration::from_secs(60);

/// The nodes that a client may wake for new jobs, as they were last read.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<State>);

#[derive(Debug)]
struct State {
    peers: Vec<Peer>,
    /// When the nodes were last read.
    read: Option<Instant>,
    /// When a read was last requested.
    asked: Option<Instant>,
    /// The age at which the next read is requested.
    old: Duration,
    /// The index of the peer that is considered next, so that the peers take turns.
    next: usize,
    /// The index of the peer that [`Peers::choose_without`] considers next, so that the peers that
    /// do not run a route take turns too.
    next_without: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            peers: Vec::new(),
            read: None,
            asked: None,
            old: YOUNG,
            next: 0,
            next_without: 0,
        }
    }
}

impl State {
    fn is_known(&self) -> bool {
        let now = time::monotonic();
        self.read.is_some_and(|read| now < read + TOO_OLD)
    }
}

#[derive(Debug)]
struct Peer {
    node: NodeId,
    profile: NodeProfile,
    pools: Vec<PeerPool>,
}

#[derive(Debug)]
struct PeerPool {
    pool: PoolProfile,
    /// The free slots of the pool when the nodes were read, minus the jobs for which its node was
    /// chosen since then.
    unoffered: u32,
}

impl Peer {
    /// Returns the index of the pool that runs jobs of a route. Returns `None` if the node does not
    /// run such jobs.
    fn pool(&self, route: &Route) -> Option<usize> {
        let takes = |one: &PeerPool| one.pool.takes(route);
        let place = self.pools.iter().position(takes);
        place.filter(|_| self.profile.takes(route))
    }
}

impl Peers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the caller must now read the nodes. One caller gets `true`; later callers
    /// get `false` until the list is old again.
    pub(crate) fn begin_read_if_old(&self) -> bool {
        let now = time::monotonic();
        let mut state = self.state();
        let old = state.old;
        let is_old = state.asked.is_none_or(|asked| now >= asked + old);
        if is_old && state.asked.replace(now).is_some() {
            state.old = OLD.min(old * 2);
        }
        is_old
    }

    /// Replaces the known nodes with the active ones among `nodes`.
    pub(crate) fn replace(&self, nodes: Vec<NodeRecord>) {
        let peers = nodes
            .into_iter()
            .filter(|node| node.status == NodeStatus::Active)
            .map(|mut node| {
                let pools = node.profile.pools.take().unwrap_or_default().into_iter();
                let pool = |pool: PoolProfile| PeerPool {
                    unoffered: pool.free,
                    pool,
                };
                Peer {
                    node: node.node,
                    profile: node.profile,
                    pools: pools.map(pool).collect(),
                }
            });
        let mut state = self.state();
        state.peers = peers.collect();
        state.read = Some(time::monotonic());
        state.next = fastrand::usize(..1_000_000);
        state.next_without = fastrand::usize(..1_000_000);
    }

    /// Returns whether the nodes were read recently enough to choose one of them.
    pub(crate) fn are_known(&self) -> bool {
        self.state().is_known()
    }

    /// Chooses a node other than `own` for this many jobs of a route.
    ///
    /// Prefers a node that probably still has enough free slots. The second choice is a node that
    /// had enough free slots when the nodes were read, since bodies may have ended in the meantime.
    /// The third is a node with enough slots in total. Equal nodes take turns. Returns `None` if no
    /// known node has enough slots.
    pub(crate) fn choose(&self, route: &Route, jobs: usize, own: Option<NodeId>) -> Option<NodeId> {
        let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
        let mut state = self.state();
        if !state.is_known() {
            return None;
        }
        let (next, count) = (state.next, state.peers.len());
        let places = (0..count).map(|step| (next % count + step) % count);
        let pools = places.filter_map(|place| {
            let peer = &state.peers[place];
            let pool = peer.pool(route).filter(|_| own != Some(peer.node))?;
            (peer.pools[pool].pool.slots >= jobs).then_some((place, pool))
        });
        let (place, pool) = pools.min_by_key(|(place, pool)| {
            let pool = &state.peers[*place].pools[*pool];
            (pool.unoffered < jobs, pool.pool.free < jobs)
        })?;
        state.next = place + 1;
        state.old = OLD;
        let peer = &mut state.peers[place];
        let unoffered = &mut peer.pools[pool].unoffered;
        *unoffered = unoffered.saturating_sub(jobs);
        Some(peer.node)
    }

    /// Chooses a node that runs jobs, but none of this route. Such nodes take turns. Returns `None`
    /// if no such node is known.
    pub(crate) fn choose_without(&self, route: &Route) -> Option<NodeId> {
        let mut state = self.state();
        if !state.is_known() {
            return None;
        }
        let (next, count) = (state.next_without, state.peers.len());
        let mut places = (0..count).map(|step| (next % count + step) % count);
        let place = places.find(|place| {
            let peer = &state.peers[*place];
            !peer.pools.is_empty() && peer.pool(route).is_none()
        })?;
        state.next_without = place + 1;
        state.old = OLD;
        Some(state.peers[place].node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Heartbeat, NewJob};
    use crate::name::Name;
    use crate::time::from_millis;

    /// Returns the record of a node that runs jobs of this kind.
    fn node(kind: &str) -> NodeRecord {
        let name = |text| Name::new("name", text).unwrap();
        let mut profile = NodeProfile::new(vec![], vec![]).kinds(vec![name(kind)]);
        profile.pools = Some(vec![PoolProfile::new(2, 2)]);
        let interval = Duration::from_secs(5);
        let beat = Heartbeat::new(NodeId::new(), name("n"), NodeStatus::Active, interval);
        NodeRecord::joined(&beat.profile(profile), from_millis(0))
    }

    #[tokio::test]
    async fn nodes_that_run_no_job_of_a_route_take_turns() {
        let peers = Peers::default();
        let route = NewJob::new("a", &()).spec().route.clone();
        let nodes = ["a", "a", "b", "c"].map(node);
        peers.replace(nodes.to_vec());
        let own = Some(nodes[0].node);
        let mut others = std::collections::BTreeSet::new();
        for _ in 0..2 {
            assert_eq!(peers.choose(&route, 1, own), Some(nodes[1].node));
            others.extend(peers.choose_without(&route));
        }
        assert_eq!(others, [nodes[2].node, nodes[3].node].into());
    }
}
