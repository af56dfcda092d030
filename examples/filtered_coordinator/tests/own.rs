//! Tests of behaviour that the conformance suite does not require.

use filtered_coordinator_example::FilteredCoordinator;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup};
use ratchet_core::{Name, Selection};

#[tokio::test]
async fn a_node_hears_only_of_its_queues() {
    let queue = |text| Name::new("queue", text).unwrap();
    let images = FilteredCoordinator::new(Selection::Only(vec![queue("images")]));
    let mail = images.join(Selection::Only(vec![queue("mail")]));
    let (mut on_images, mut on_mail) = (images.subscribe(), mail.subscribe());
    for sent in ["images", "mail"] {
        images.notify(Wakeup::queue(queue(sent))).await;
    }
    assert_eq!(on_images.next().await, Wakeup::queue(queue("images")));
    assert_eq!(on_mail.next().await, Wakeup::queue(queue("mail")));
}
