//! Which nodes look idle: those of the last time that the nodes were read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::NodeId;
use crate::model::{NodeProfile, NodeRecord, NodeStatus};
use crate::route::Route;
use crate::time;

/// From this age on the nodes are read again.
const OLD: Duration = Duration::from_secs(10);
/// From this age on they are read again at first: nodes may have started since. The age doubles
/// with each read up to [`OLD`], and is [`OLD`] once a node was chosen.
const YOUNG: Duration = Duration::from_secs(1);
/// From this age on they are not used any more.
const TOO_OLD: Duration = Duration::from_secs(60);

/// The nodes that new jobs may be offered to.
#[derive(Debug, Default)]
pub(crate) struct Peers(Mutex<State>);

#[derive(Debug)]
struct State {
    peers: Vec<Peer>,
    /// When they were read.
    read: Option<Instant>,
    /// When they were last asked for.
    asked: Option<Instant>,
    /// From which age on they are asked for again.
    old: Duration,
    /// The peer to look at next, so that all have their turn.
    next: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            peers: Vec::new(),
            read: None,
            asked: None,
            old: YOUNG,
            next: 0,
        }
    }
}

#[derive(Debug)]
struct Peer {
    node: NodeId,
    profile: NodeProfile,
    /// How many bodies it can run at once.
    capacity: usize,
    /// For how many more it had room, less the jobs that were offered to it since.
    room: usize,
}

impl Peers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it is time to read the nodes; the caller then does.
    pub(crate) fn ask(&self) -> bool {
        let now = time::monotonic();
        let mut state = self.state();
        let old = state.old;
        let is_old = state.asked.is_none_or(|asked| now >= asked + old);
        if is_old {
            state.asked = Some(now);
            state.old = OLD.min(old * 2);
        }
        is_old
    }

    /// Keeps the nodes that can take jobs.
    pub(crate) fn keep(&self, nodes: Vec<NodeRecord>) {
        let peers = nodes
            .into_iter()
            .filter(|node| node.status == NodeStatus::Active)
            .map(|node| {
                let (capacity, running) = (node.load.capacity, node.load.running);
                let count = |bodies| usize::try_from(bodies).unwrap_or(usize::MAX);
                Peer {
                    node: node.node,
                    profile: node.profile,
                    capacity: count(capacity),
                    room: count(capacity.saturating_sub(running)),
                }
            });
        let mut state = self.state();
        state.peers = peers.collect();
        state.read = Some(time::monotonic());
        state.next = fastrand::usize(..1_000_000);
    }

    /// Chooses a node for this many jobs of a route: the next in turn that seems to have room for
    /// them, or else one that is merely large enough, as its bodies may have ended since. `None` if
    /// no known node is.
    pub(crate) fn choose(&self, route: &Route, jobs: usize) -> Option<NodeId> {
        let mut state = self.state();
        if time::monotonic() >= state.read? + TOO_OLD {
            return None;
        }
        let (next, count) = (state.next, state.peers.len());
        let places = (0..count).map(|step| (next % count + step) % count);
        let places = places.filter(|place| {
            let peer = &state.peers[*place];
            peer.capacity >= jobs && peer.profile.takes(route)
        });
        let mut large_enough = places.clone();
        let place = places
            .into_iter()
            .find(|place| state.peers[*place].room >= jobs)
            .or_else(|| large_enough.next())?;
        state.next = place + 1;
        state.old = OLD;
        let peer = &mut state.peers[place];
        peer.room = peer.room.saturating_sub(jobs);
        Some(peer.node)
    }
}
