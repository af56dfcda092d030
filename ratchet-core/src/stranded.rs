//! Finds the due jobs that no node of the cluster can run.

use crate::model::{DueRoute, NodeRecord};

/// Returns the due routes whose jobs no live node can run. A node can run the jobs of a route if it
/// has a handler for their kind and the required capability. The jobs of the returned routes wait
/// until such a node joins.
///
/// A route is returned only if it is certain that no live node can run its jobs:
/// - If a live node does not report which kinds it runs, no route is returned, because the node may
///   run any kind. Nodes of earlier versions do not report their kinds.
/// - If no node is live, no route is returned, because the cause is then the missing nodes, not a
///   missing handler.
/// - Routes of a paused queue or kind are left out, because their jobs wait for the end of the
///   pause.
/// - The function does not know which queues a node polls, so it ignores the queues.
///
/// ```
/// # use std::time::Duration;
/// # use ratchet::{Name, NodeId, Route};
/// # use ratchet_core::model::{DueRoute, Heartbeat, NodeProfile, NodeRecord, NodeStatus};
/// # use ratchet_core::time::from_millis;
/// use ratchet_core::stranded::stranded;
///
/// # fn main() -> Result<(), ratchet::InvalidInput> {
/// let name = |text| Name::new("kind", text);
/// let worker = NodeProfile::new(vec![name("worker")?], vec![]).kinds(vec![name("mail")?]);
/// # let beat = Heartbeat::new(NodeId::new(), name("a")?, NodeStatus::Active, Duration::from_secs(5));
/// # let node = NodeRecord::joined(&beat.profile(worker), from_millis(0));
/// let due = |kind| -> Result<DueRoute, ratchet::InvalidInput> {
///     let route = Route::from_texts("default", kind, "", "")?;
///     Ok(DueRoute::at(route, false, 0, 60_000))
/// };
/// let found = stranded(&[due("mail")?, due("resize")?], &[node]);
/// assert_eq!(found, [due("resize")?]);
/// # Ok(()) }
/// ```
#[must_use]
pub fn stranded(due: &[DueRoute], nodes: &[NodeRecord]) -> Vec<DueRoute> {
    let live: Vec<&NodeRecord> = nodes.iter().filter(|node| node.status.is_live()).collect();
    if live.is_empty() || live.iter().any(|node| node.profile.kinds.is_none()) {
        return Vec::new();
    }
    due.iter()
        .filter(|due| !due.is_paused())
        .filter(|due| !live.iter().any(|node| node.profile.takes(&due.route)))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::id::NodeId;
    use crate::model::{Heartbeat, NodeProfile, NodeStatus};
    use crate::name::Name;
    use crate::route::Route;
    use crate::time::from_millis;

    fn names(texts: &[&str]) -> Vec<Name> {
        let name = |text: &&str| Name::new("test", *text).unwrap();
        texts.iter().map(name).collect()
    }

    fn node(status: NodeStatus, kinds: Option<&[&str]>, capabilities: &[&str]) -> NodeRecord {
        let mut profile = NodeProfile::new(names(&["worker"]), names(capabilities));
        profile.kinds = kinds.map(names);
        let label = Name::new("label", "n").unwrap();
        let beat = Heartbeat::new(NodeId::new(), label, status, Duration::from_secs(5));
        NodeRecord::joined(&beat.profile(profile), from_millis(0))
    }

    fn due(kind: &str, capability: &str, paused: bool) -> DueRoute {
        let route = Route::from_texts("default", kind, capability, "").unwrap();
        DueRoute::at(route, false, 0, 1_000).kind_paused(paused)
    }

    #[test]
    fn a_kind_that_only_the_dead_run_is_stranded() {
        let nodes = [
            node(NodeStatus::Dead, Some(&["old"]), &[]),
            node(NodeStatus::Left, None, &[]),
            node(NodeStatus::Active, Some(&["mail"]), &[]),
        ];
        let found = stranded(&[due("mail", "", false), due("old", "", false)], &nodes);
        assert_eq!(found, [due("old", "", false)]);
    }

    #[test]
    fn one_node_must_have_both_the_kind_and_the_capability() {
        let gpu_mail = [due("mail", "gpu", false)];
        let apart = [
            node(NodeStatus::Active, Some(&["mail"]), &[]),
            node(NodeStatus::Active, Some(&["resize"]), &["gpu"]),
        ];
        assert_eq!(stranded(&gpu_mail, &apart), gpu_mail);
        let together = [node(NodeStatus::Draining, Some(&["mail"]), &["gpu"])];
        assert_eq!(stranded(&gpu_mail, &together), []);
    }

    #[test]
    fn nothing_is_said_of_what_is_not_known() {
        let lost = [due("lost", "", false)];
        assert_eq!(stranded(&lost, &[]), []);
        let dead = [node(NodeStatus::Dead, Some(&[]), &[])];
        assert_eq!(stranded(&lost, &dead), []);
        let silent = [
            node(NodeStatus::Active, Some(&["mail"]), &[]),
            node(NodeStatus::Joining, None, &[]),
        ];
        assert_eq!(stranded(&lost, &silent), []);
        assert_eq!(stranded(&lost, &silent[..1]), lost);
        assert_eq!(stranded(&[due("lost", "", true)], &silent[..1]), []);
    }

    fn any_node() -> impl Strategy<Value = NodeRecord> {
        let some = |all: &'static [&'static str]| proptest::sample::subsequence(all, 0..=all.len());
        let kinds = proptest::option::weighted(0.9, some(&["a", "b", "c"]));
        (0..NodeStatus::ALL.len(), kinds, some(&["x", "y"]))
            .prop_map(|(status, kinds, has)| node(NodeStatus::ALL[status], kinds.as_deref(), &has))
    }

    proptest! {
        /// An additional node never makes a route stranded, if other nodes are live. For each route
        /// that is not stranded, one of these holds: it is paused, a live node can run its
        /// jobs, it is unknown whether a live node can, or no node is live.
        #[test]
        fn a_node_more_never_strands(
            nodes in proptest::collection::vec(any_node(), 1..5),
            routes in proptest::collection::vec(
                (prop_oneof!["a", "b", "c", "d"], prop_oneof!["", "x", "y", "z"], any::<bool>()), 0..6),
        ) {
            let due: Vec<DueRoute> =
                routes.iter().map(|(kind, needs, paused)| due(kind, needs, *paused)).collect();
            let all = stranded(&due, &nodes);
            let fewer = &nodes[1..];
            if fewer.iter().any(|node| node.status.is_live()) {
                let before = stranded(&due, fewer);
                prop_assert!(all.iter().all(|route| before.contains(route)));
            }
            let live = || nodes.iter().filter(|node| node.status.is_live());
            for route in due.iter().filter(|route| !all.contains(route)) {
                let has_taker = live().any(|node| node.profile.takes(&route.route));
                let unknown = live().any(|node| node.profile.kinds.is_none());
                prop_assert!(route.is_paused() || has_taker || unknown || live().next().is_none());
            }
        }
    }
}
