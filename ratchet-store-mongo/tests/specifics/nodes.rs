//! Nodes that join and leave.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use ratchet_conformance::TestClock;
use ratchet_core::model::{Guarded, Heartbeat, NodeStatus, NodeSweep};
use ratchet_core::store::{Checked, NodeStore};
use ratchet_core::{Name, NodeId};
use ratchet_store_mongo::MongoStore;

use crate::server::Space;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

async fn joins(store: &Checked<MongoStore>, label: &str) -> NodeId {
    let (node, label) = (NodeId::new(), Name::new("label", label).unwrap());
    let beat = Heartbeat::new(node, label, NodeStatus::Joining, SECOND);
    store.heartbeat(&beat).await.unwrap();
    node
}

async fn sweep(store: &Checked<MongoStore>) -> u64 {
    let sweep = NodeSweep::new(2 * HOUR, SECOND);
    match store.sweep_nodes(&sweep).await.unwrap() {
        Guarded::Done(swept) => swept.forgotten,
        Guarded::Stale => panic!("a call without a guard should not be stale"),
    }
}

async fn labels(space: &Space) -> Vec<String> {
    let labels = space.of_majority("labels");
    let mut labels: Vec<String> = labels
        .distinct("_id", doc! {})
        .await
        .unwrap()
        .into_iter()
        .map(|label| label.as_str().unwrap().to_owned())
        .collect();
    labels.sort();
    labels
}

pub(crate) async fn a_label_goes_with_the_last_node_that_has_it(space: Arc<Space>) {
    let clock = space.name("clock");
    let store = space.builder().clock_collection(clock);
    let store = store.connect().await.unwrap();
    for label in ["once", "again", "again", "stays"] {
        joins(&store, label).await;
    }
    let leaving: Vec<NodeId> = store
        .nodes()
        .await
        .unwrap()
        .iter()
        .map(|n| n.node)
        .collect();
    for node in leaving {
        store.set_node_status(node, NodeStatus::Left).await.unwrap();
    }
    space.advance(HOUR).await;
    // The earlier node with the label `stays` is as old as the other nodes, so the sweep deletes it
    // too.
    let last = joins(&store, "stays").await;
    assert_eq!(labels(&space).await, ["again", "once", "stays"]);
    assert_eq!(sweep(&store).await, 4);
    assert_eq!(labels(&space).await, ["stays"]);
    // The label's document still exists, and its number continues. So the earlier node is
    // displaced.
    joins(&store, "stays").await;
    let nodes = store.nodes().await.unwrap();
    let displaced = nodes.iter().find(|node| node.node == last).unwrap();
    assert_eq!(displaced.status, NodeStatus::Dead);
    // A label that is used again starts with a new document.
    let (first, second) = (joins(&store, "once").await, joins(&store, "once").await);
    let nodes = store.nodes().await.unwrap();
    let status = |id| nodes.iter().find(|node| node.node == id).unwrap().status;
    assert_eq!(status(first), NodeStatus::Dead);
    assert!(status(second).is_live());
}
