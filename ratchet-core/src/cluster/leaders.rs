use std::time::Duration;

use crate::id::{Fence, NodeId};
use crate::model::NodeRecord;
use crate::name::Name;
use crate::store::LockInfo;

/// The prefix of the name of a role's lock.
pub(crate) const PREFIX: &str = "leader/";

/// A role and its leader, as shown by the row of the role's lock.
///
/// The row has one owner, which leads until the lock expires. So a role never shows two leaders,
/// nor a leader whose term has ended.
///
/// ```
/// # async fn example(client: &ratchet::Client) -> Result<(), ratchet::BoxError> {
/// let nodes = client.nodes().await?;
/// for leader in client.leaders(&nodes).await? {
///     println!("{}: {:?}", leader.role, leader.node);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The role.
    pub role: Name,
    /// The node that leads. `None` if no node does, or the holder of the lock is not a node.
    pub node: Option<NodeId>,
    /// The present term, or the last one if no node leads.
    pub term: Fence,
    /// The time until the lock expires unless it is renewed, by the database's clock. `None` if the
    /// lock has no holder.
    pub remaining: Option<Duration>,
}

impl Leader {
    /// Returns the leaders of all roles among these locks, in the order of the locks.
    #[must_use]
    pub fn among(locks: &[(Name, LockInfo)]) -> Vec<Self> {
        let leader = |(name, lock): &(Name, LockInfo)| {
            let role = name.as_str().strip_prefix(PREFIX)?;
            let holder = lock.holder.as_ref();
            Some(Self {
                role: Name::new("role", role).ok()?,
                node: holder.and_then(|holder| holder.owner.as_str().parse().ok()),
                term: lock.fence,
                remaining: holder.map(|holder| holder.remaining),
            })
        };
        locks.iter().filter_map(leader).collect()
    }

    /// Removes the leader if its node record shows that the node has ended.
    ///
    /// A displaced or crashed node no longer counts as leading, although its lock has not expired
    /// yet. Until then, a node that has not noticed that it was declared dead may still make
    /// guarded writes. A holder without a node record counts as leading.
    #[must_use]
    pub fn unless_ended(mut self, nodes: &[NodeRecord]) -> Self {
        let has_ended = |node: &NodeRecord| Some(node.node) == self.node && !node.status.is_live();
        if nodes.iter().any(has_ended) {
            self.node = None;
            self.remaining = None;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Heartbeat, NodeStatus};
    use crate::store::HeldLock;

    fn lock(name: &str, fence: u64, owner: Option<&str>) -> (Name, LockInfo) {
        let holder = owner.map(|owner| HeldLock {
            fence: Fence(fence),
            owner: Name::new("owner", owner).unwrap(),
            remaining: Duration::from_secs(9),
        });
        let info = LockInfo {
            fence: Fence(fence),
            expired_for: holder.is_none().then_some(Duration::from_secs(1)),
            holder,
            holder_gone: false,
        };
        (Name::new("lock", name).unwrap(), info)
    }

    #[test]
    fn leaders_are_what_the_locks_of_roles_say() {
        let node = NodeId::new();
        let locks = [
            lock("cron", 3, Some("somebody")),
            lock("leader/maintenance", 7, Some(&node.to_string())),
            lock("leader/pricing", 2, None),
            lock("leader/report", 1, Some("no-node")),
        ];
        let found = Leader::among(&locks);
        let shown: Vec<_> = found
            .iter()
            .map(|one| {
                (
                    one.role.as_str(),
                    one.node,
                    one.term.0,
                    one.remaining.is_some(),
                )
            })
            .collect();
        let expected = [
            ("maintenance", Some(node), 7, true),
            ("pricing", None, 2, false),
            ("report", None, 1, true),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_node_that_has_ended_leads_no_more() {
        let id = NodeId::new();
        let label = Name::new("label", "n").unwrap();
        let led = [lock("leader/maintenance", 7, Some(&id.to_string()))];
        let leads_while = |status| {
            let beat = Heartbeat::new(id, label.clone(), NodeStatus::Active, Duration::ZERO);
            let mut record = NodeRecord::joined(&beat, crate::time::from_millis(0));
            record.status = status;
            let leader = Leader::among(&led).remove(0).unless_ended(&[record]);
            assert_eq!(leader.node.is_some(), leader.remaining.is_some());
            (leader.node, leader.term.0)
        };
        for live in [
            NodeStatus::Joining,
            NodeStatus::Active,
            NodeStatus::Draining,
        ] {
            assert_eq!(leads_while(live), (Some(id), 7), "{live:?}");
        }
        for ended in [NodeStatus::Left, NodeStatus::Dead] {
            assert_eq!(leads_while(ended), (None, 7), "{ended:?}");
        }
        let unknown = Leader::among(&led).remove(0).unless_ended(&[]);
        assert_eq!(unknown.node, Some(id));
    }
}
