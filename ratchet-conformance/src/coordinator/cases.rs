//! The cases for coordinators.

use std::time::Duration;

use futures_util::FutureExt;
use ratchet_core::NodeId;
use ratchet_core::cluster::Wakeup;

use super::{Transport, deliver};
use crate::build::name;
use crate::case::cases;
use crate::runner::race;

fn about(queue: &str) -> Wakeup {
    Wakeup::queue(name(queue))
}

cases! {
    "wakeup" on Transport;

    #[proves("wakeup.delivery")]
    #[needs(Delivery)]
    async fn a_wakeup_reaches_a_subscription_of_another_node(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        let mut streams = [b.subscribe()];
        deliver(&*a, &about("images"), &mut streams).await;
    }

    #[proves("wakeup.delivery")]
    #[needs(Delivery)]
    async fn a_wakeup_arrives_as_it_was_sent(transport: &Transport) {
        let node = transport.connect().await;
        let longest = "q".repeat(128);
        for queue in ["default", "größe 🦀", "it's \"quoted\"; \\", &longest] {
            let mut fresh = [node.subscribe()];
            deliver(&*node, &about(queue).from_node(NodeId::new()), &mut fresh).await;
            let mut fresh = [node.subscribe()];
            deliver(&*node, &about(queue), &mut fresh).await;
        }
    }

    #[proves("wakeup.everyone")]
    #[needs(Delivery)]
    async fn every_subscription_gets_its_own_copy(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        let mut streams = [a.subscribe(), b.subscribe(), b.subscribe()];
        deliver(&*a, &about("images"), &mut streams).await;
    }

    #[proves("wakeup.delivery")]
    async fn nothing_comes_that_was_not_sent(transport: &Transport) {
        let node = transport.connect().await;
        let mut stream = node.subscribe();
        for _ in 0..100 {
            assert_eq!(stream.next().now_or_never(), None);
            tokio::task::yield_now().await;
        }
    }

    #[proves("wakeup.delivery")]
    #[needs(Delivery)]
    async fn looking_for_a_wakeup_and_giving_up_loses_none(transport: &Transport) {
        let node = transport.connect().await;
        let mut stream = node.subscribe();
        for _ in 0..10 {
            assert_eq!(stream.next().now_or_never(), None);
        }
        deliver(&*node, &about("images"), std::slice::from_mut(&mut stream)).await;
    }

    #[proves("wakeup.harmless")]
    async fn sending_without_a_subscription_is_harmless(transport: &Transport) {
        let node = transport.connect().await;
        for _ in 0..100 {
            node.notify(about("images")).await;
        }
        drop(node.subscribe());
        node.notify(about("images")).await;
    }

    #[proves("wakeup.harmless")]
    async fn a_subscription_that_never_looks_blocks_nobody(transport: &Transport) {
        let node = transport.connect().await;
        let _never_read = node.subscribe();
        let flood = async {
            for _ in 0..5_000 {
                node.notify(about("images")).await;
            }
        };
        let done = tokio::time::timeout(Duration::from_secs(60), flood).await;
        assert!(done.is_ok(), "a slow subscription holds up the sender");
    }

    #[proves("wakeup.delivery", "wakeup.harmless")]
    #[needs(Delivery)]
    async fn a_subscription_that_fell_behind_is_still_woken(transport: &Transport) {
        let node = transport.connect().await;
        let mut stream = node.subscribe();
        for _ in 0..5_000 {
            node.notify(about("images")).await;
        }
        let woken = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
        assert!(woken.is_ok(), "whoever missed much is not told at all");
    }

    #[proves("wakeup.everyone", "wakeup.harmless")]
    #[needs(Delivery)]
    async fn a_dropped_subscription_leaves_the_others(transport: &Transport) {
        let node = transport.connect().await;
        let mut kept = node.subscribe();
        for _ in 0..10 {
            let mut short = [node.subscribe()];
            deliver(&*node, &about("images"), &mut short).await;
        }
        deliver(&*node, &about("images"), std::slice::from_mut(&mut kept)).await;
    }

    #[proves("wakeup.harmless")]
    async fn many_senders_do_not_disturb_each_other(transport: &Transport) {
        let node = transport.connect().await;
        let _stream = node.subscribe();
        race(8, |_| {
            let node = std::sync::Arc::clone(&node);
            async move {
                for _ in 0..100 {
                    node.notify(about("images")).await;
                }
            }
        })
        .await;
    }
}
