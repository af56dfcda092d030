//! Tests of what a node reports about itself without calling the store, such as its status.

use std::time::Duration;

use ratchet_core::model::NodeStatus;
use ratchet_core::store::NodeStore;
use tokio::time::sleep;

use crate::kit::{Started, World};

const MOMENT: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn a_node_knows_who_it_is_and_what_it_does() {
    let world = World::new();
    let node = world.builder().label("here").build().unwrap();
    assert_eq!(
        (node.status(), node.is_running()),
        (NodeStatus::Joining, false)
    );
    assert_eq!(node.label().as_str(), "here");
    let first = node.id();
    let started = Started::new(node.clone());
    while node.status() != NodeStatus::Active {
        sleep(MOMENT).await;
    }
    assert!(node.is_running());
    assert_eq!(node.id(), first);
    assert_eq!(world.store.nodes().await.unwrap()[0].node, first);
    let job = world.job("long", |_| async {
        sleep(Duration::from_secs(5)).await;
        Ok(())
    });
    let id = world.enqueue(job).await;
    while node.running() == 0 {
        sleep(MOMENT).await;
    }
    assert!(node.running() <= node.capacity());
    world.ended(id).await;
    started.stop().await.unwrap();
    assert_eq!(
        (node.status(), node.is_running()),
        (NodeStatus::Left, false)
    );
    assert_eq!((node.id(), node.running()), (first, 0));

    let again = Started::new(node.clone());
    while node.status() != NodeStatus::Active {
        sleep(MOMENT).await;
    }
    assert_ne!(node.id(), first, "expected a new node id for each run");
    again.kill().await;
    assert_eq!(node.status(), NodeStatus::Dead);
}

#[tokio::test(start_paused = true)]
async fn a_displaced_node_knows_that_it_is_dead() {
    let world = World::new();
    let build = || world.builder().label("same").build().unwrap();
    let (old, new) = (build(), build());
    let displaced = Started::new(old.clone());
    while old.status() != NodeStatus::Active {
        sleep(MOMENT).await;
    }
    let started = Started::new(new.clone());
    displaced.ended().await.unwrap_err();
    assert_eq!(old.status(), NodeStatus::Dead);
    assert_eq!(new.status(), NodeStatus::Active);
    started.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_a_node_takes_part_in_can_be_read() {
    let world = World::new();
    let node = world.builder().role("pricing").active_passive("primary");
    let node = node.build().unwrap();
    let roles: Vec<String> = node.roles().iter().map(ToString::to_string).collect();
    assert_eq!(roles, ["maintenance", "pricing", "primary"]);
    assert_eq!(node.gate().unwrap().as_str(), "primary");
    assert!(node.capacity() > 0);
    let idle = world.builder().roles(["maintenance"]).build().unwrap();
    assert_eq!((idle.capacity(), idle.gate()), (0, None));
    assert!(idle.label().as_str().contains(&idle.id().to_string()));
}
