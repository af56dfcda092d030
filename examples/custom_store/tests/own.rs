//! What the suite cannot know: that the meter counts and the filter filters.

use std::sync::Arc;
use std::time::Duration;

use custom_store_example::{FilteredCoordinator, Meter, MeteredStore, MethodCounts};
use ratchet_core::cluster::{ClusterCoordinator, Wakeup};
use ratchet_core::memory::Fault;
use ratchet_core::{MemoryStore, Name, NewJob, Selection, Store};

#[tokio::test]
async fn calls_failures_and_slow_calls_are_counted_by_method() {
    let meter = Arc::new(Meter::new(Duration::ZERO));
    let inner = MemoryStore::new().with_faults(|method| match method {
        "database_time" => Fault::ErrorBeforeCommit,
        _ => Fault::None,
    });
    let store = MeteredStore::new(Arc::new(inner), Arc::clone(&meter));
    for _ in 0..2 {
        store
            .jobs()
            .enqueue(&[NewJob::new("kind", &())])
            .await
            .unwrap();
    }
    store.nodes().database_time().await.unwrap_err();
    let counts = |calls, failed, slow| MethodCounts {
        calls,
        failed,
        slow,
    };
    let expected = [
        ("database_time", counts(1, 1, 1)),
        ("enqueue", counts(2, 0, 2)),
    ];
    assert_eq!(meter.counts().into_iter().collect::<Vec<_>>(), expected);
}

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
