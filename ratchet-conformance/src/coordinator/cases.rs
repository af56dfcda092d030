//! The cases for coordinators.

use std::time::Duration;

use futures_util::FutureExt;
use ratchet_core::NodeId;
use ratchet_core::cluster::{ClusterCoordinator, Wakeup, WakeupStream};
use tokio::time::{sleep, timeout};

use super::Transport;
use crate::Case;
use crate::build::name;
use crate::case::cases;
use crate::runner::{caught, race};

/// Time that a case waits for an event before the case assumes that the event will never happen.
const NEVER: Duration = Duration::from_secs(60);

fn about(queue: &str) -> Wakeup {
    Wakeup::queue(name(queue))
}

/// Sends `wakeup` until every stream in `to` has received it. Sends the wakeup repeatedly, because
/// a coordinator may lose wakeups. Fails the case if a stream receives a different wakeup.
async fn deliver(from: &dyn ClusterCoordinator, wakeup: &Wakeup, to: &mut [WakeupStream]) {
    for stream in to {
        let came = until(stream, || from.notify(wakeup.clone()), |_| true).await;
        // Copies from earlier attempts may arrive, but no other wakeup.
        assert_eq!(came, *wakeup);
    }
}

/// Sends `wakeup` repeatedly until every stream in `to` has received it. Ignores other wakeups that
/// the streams receive.
pub(crate) async fn reach(from: &dyn ClusterCoordinator, wakeup: &Wakeup, to: &mut [WakeupStream]) {
    for stream in to {
        until(
            stream,
            || from.notify(wakeup.clone()),
            |came| came == wakeup,
        )
        .await;
    }
}

/// Calls `send` repeatedly until `stream` yields a wakeup for which `is_meant` returns `true`.
/// Returns that wakeup. Fails the case after 120 attempts.
async fn until<F: Future<Output = ()>>(
    stream: &mut WakeupStream,
    send: impl Fn() -> F,
    is_meant: impl Fn(&Wakeup) -> bool,
) -> Wakeup {
    for _ in 0..120 {
        send().await;
        let meant = async {
            loop {
                let came = stream.next().await;
                if is_meant(&came) {
                    return came;
                }
            }
        };
        if let Ok(came) = timeout(Duration::from_millis(500), meant).await {
            return came;
        }
    }
    panic!("expected the subscription to receive one of the repeated wakeups");
}

/// Sends `wakeup` 20 times and checks that the calls do not block. The wakeups need not arrive.
async fn send_anyhow(from: &dyn ClusterCoordinator, wakeup: &Wakeup) {
    let sending = async {
        for _ in 0..20 {
            from.notify(wakeup.clone()).await;
        }
    };
    let sent = timeout(NEVER, sending).await;
    assert!(
        sent.is_ok(),
        "expected the sender to return although the transport is unreachable"
    );
}

/// Waits until each of these streams has received a wakeup for any queue, which says that wakeups
/// may have been lost.
async fn learn_of_outage(streams: &mut [WakeupStream]) {
    for stream in streams {
        let told = timeout(NEVER, async {
            while stream.next().await != Wakeup::any() {}
        });
        let told = told.await.is_ok();
        assert!(
            told,
            "expected the subscription to report that wakeups may be lost"
        );
    }
}

/// Returns the number of live tasks in the current Tokio runtime.
fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

/// Connects a coordinator. If this case fails, every other case would fail too.
pub(crate) static SETUP: Case<Transport> = Case {
    group: "setup",
    name: "a_coordinator_can_connect",
    clauses: &[],
    needs: &[],
    body: |transport| {
        Box::pin(async move {
            transport.connect().await;
        })
    },
};

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
    async fn a_subscription_that_never_reads_blocks_no_other(transport: &Transport) {
        let node = transport.connect().await;
        let _never_read = node.subscribe();
        let flood = async {
            for _ in 0..5_000 {
                node.notify(about("images")).await;
            }
        };
        let done = timeout(NEVER, flood).await;
        assert!(done.is_ok(), "expected the sender to return although a subscription is slow");
    }

    #[proves("wakeup.delivery", "wakeup.harmless")]
    #[needs(Delivery)]
    async fn a_subscription_that_fell_behind_is_still_woken(transport: &Transport) {
        let node = transport.connect().await;
        let mut stream = node.subscribe();
        for _ in 0..5_000 {
            node.notify(about("images")).await;
        }
        let woken = timeout(NEVER, stream.next()).await;
        assert!(woken.is_ok(), "expected a wakeup for the subscription that missed wakeups");
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

    #[proves("wakeup.echo")]
    #[needs(Delivery)]
    async fn a_subscriber_knows_its_own_echoes_by_their_source(transport: &Transport) {
        let ends = [transport.connect().await, transport.connect().await];
        let ids = [NodeId::new(), NodeId::new()];
        let mut streams = [ends[0].subscribe(), ends[1].subscribe()];
        let sent = |by: usize| about("images").from_node(ids[by]);
        for (own, stream) in streams.iter_mut().enumerate() {
            let other = 1 - own;
            let both = || async {
                ends[own].notify(sent(own)).await;
                ends[other].notify(sent(other)).await;
            };
            // Ignores echoes, and the wakeups without a node that the loop sent in an earlier
            // round.
            let from_a_node =
                |came: &Wakeup| came.source.is_some() && !came.is_echo_of(ids[own]);
            let came = until(stream, both, from_a_node).await;
            assert_eq!(came, sent(other), "expected a wakeup that is not an echo to come from the other node");
            // A client is not a node, so its wakeups are never echoes. They must reach all streams.
            reach(&*ends[own], &about("videos"), std::slice::from_mut(stream)).await;
        }
    }

    #[proves("wakeup.to")]
    #[needs(Delivery)]
    async fn a_wakeup_says_which_node_it_is_for(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        let mut streams = [a.subscribe(), b.subscribe()];
        reach(&*a, &about("images").to(NodeId::new()), &mut streams).await;
        let sender = NodeId::new();
        let signed = about("images").from_node(sender);
        reach(&*b, &signed.clone().to(NodeId::new()), &mut streams).await;
        reach(&*b, &signed, &mut streams).await;
    }

    #[proves("wakeup.beacon")]
    #[needs(Delivery)]
    async fn a_beacon_says_for_how_long_its_sender_leads(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        let mut streams = [a.subscribe(), b.subscribe()];
        let leader = NodeId::new();
        for leads_for in [8_000, 1, 0] {
            let beacon = Wakeup::beacon(leader, Duration::from_millis(leads_for));
            reach(&*a, &beacon, &mut streams).await;
        }
        reach(&*b, &about("images").from_node(leader), &mut streams).await;
    }

    #[proves("wakeup.isolated", "wakeup.everyone")]
    #[needs(Delivery)]
    async fn a_listener_that_panics_or_never_reads_harms_no_other(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        for round in 0..3 {
            let mut doomed = b.subscribe();
            let _never_looks = b.subscribe();
            let mut others = [a.subscribe(), b.subscribe()];
            let listener = tokio::spawn(caught(async move {
                let wakeup = doomed.next().await;
                panic!("planned panic of the listener at {wakeup:?}");
            }));
            let panicked = timeout(NEVER, async {
                while !listener.is_finished() {
                    a.notify(about("images")).await;
                    sleep(Duration::from_millis(10)).await;
                }
                listener.await
            })
            .await;
            let panicked: Result<(), String> = panicked.expect("the listener should get a wakeup").expect("the test should catch the panic");
            assert!(panicked.is_err());
            let next = about(&format!("images {round}"));
            reach(&*a, &next, &mut others).await;
            reach(&*b, &next, &mut [a.subscribe(), b.subscribe()]).await;
        }
    }

    #[proves("wakeup.outage", "wakeup.harmless")]
    #[needs(Delivery, Outage)]
    async fn an_outage_is_silent_and_every_node_is_woken_after_it(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        let mut streams = [a.subscribe(), b.subscribe()];
        deliver(&*a, &about("images"), &mut streams).await;
        reach(&*b, &about("videos"), &mut [a.subscribe()]).await;
        for round in 0..2 {
            transport.outage().cut().await;
            for end in [&a, &b] {
                send_anyhow(&**end, &about("images")).await;
            }
            transport.outage().mend().await;
            learn_of_outage(&mut streams).await;
            let next = about(&format!("images {round}"));
            reach(&*a, &next, &mut streams).await;
            let next = about(&format!("videos {round}"));
            reach(&*b, &next, &mut streams).await;
        }
    }

    #[proves("wakeup.outage", "wakeup.harmless")]
    #[needs(Delivery, Outage)]
    async fn a_transport_that_falls_silent_is_noticed(transport: &Transport) {
        let (a, b) = (transport.connect().await, transport.connect().await);
        let mut streams = [a.subscribe(), b.subscribe()];
        deliver(&*a, &about("images"), &mut streams).await;
        reach(&*b, &about("videos"), &mut [a.subscribe()]).await;
        transport.outage().freeze().await;
        for end in [&a, &b] {
            send_anyhow(&**end, &about("images")).await;
        }
        transport.outage().mend().await;
        learn_of_outage(&mut streams).await;
        reach(&*a, &about("more images"), &mut streams).await;
        reach(&*b, &about("more videos"), &mut streams).await;
    }

    #[proves("wakeup.end")]
    #[needs(Delivery)]
    async fn nothing_is_left_of_a_coordinator_that_was_dropped(transport: &Transport) {
        let before = tasks();
        for stream_first in [false, true] {
            let mut orphan = None;
            let node = transport.connect().await;
            let mut stream = node.subscribe();
            deliver(&*node, &about("images"), std::slice::from_mut(&mut stream)).await;
            if stream_first {
                drop(stream);
                drop(node);
            } else {
                drop(node);
                orphan = Some(stream);
            }
            let ended = timeout(NEVER, async {
                while tasks() > before {
                    sleep(Duration::from_millis(10)).await;
                }
            })
            .await;
            assert!(ended.is_ok(), "expected all tasks to end, found {} still running", tasks() - before);
            if let Some(stream) = &mut orphan {
                // The stream still yields the wakeups that had arrived, and then stays pending.
                let left = async { while stream.next().now_or_never().is_some() {} };
                let waits = timeout(NEVER, left).await;
                assert!(waits.is_ok(), "expected a stream without a coordinator to stop yielding wakeups");
            }
        }
        // Other coordinators are not affected.
        let (a, b) = (transport.connect().await, transport.connect().await);
        drop(transport.connect().await);
        deliver(&*a, &about("images"), &mut [b.subscribe()]).await;
    }
}
