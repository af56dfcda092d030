//! Rates: counted exactly, by the database's clock, across all nodes.

use ratchet_core::Rate;
use ratchet_core::store::RateStore;

use super::prelude::*;

fn rates_of(node: &TestNode) -> &dyn RateStore {
    let rates = node.store.rates();
    rates.expect("the store should support rate limits, because the case requires the power Rates")
}

async fn take(node: &TestNode, key: &str, rate: Rate) -> RateAnswer {
    let answers = take_all(node, &[(key, rate)]).await;
    assert_eq!(answers.len(), 1, "expected one answer per request");
    answers[0]
}

async fn take_all(node: &TestNode, requests: &[(&str, Rate)]) -> Vec<RateAnswer> {
    let request = |(key, rate): &(&str, Rate)| RateRequest::new(name(key), *rate);
    let requests: Vec<RateRequest> = requests.iter().map(request).collect();
    ok(rates_of(node).take(&requests).await)
}

/// Returns a rate of 10 starts per second with the burst `burst`.
const fn ten(burst: u32) -> Rate {
    Rate::new(10, SECOND).burst(burst)
}

const fn wait(millis: u64) -> RateAnswer {
    RateAnswer::Wait(Duration::from_millis(millis))
}

use RateAnswer::Granted;

cases! {
    "rate" on Cx;

    #[proves("rate.exact")]
    #[needs(Rates, Clock)]
    async fn all_handles_together_get_a_burst_and_then_wait(cx: &Cx) {
        let (a, b) = (cx.node().await, cx.node().await);
        assert_eq!(take(&a, "k", ten(3)).await, Granted);
        assert_eq!(take(&b, "k", ten(3)).await, Granted);
        assert_eq!(take(&a, "k", ten(3)).await, Granted);
        // Refused requests use up no starts, however many there are.
        for _ in 0..5 {
            assert_eq!(take(&a, "k", ten(3)).await, wait(100));
            assert_eq!(take(&b, "k", ten(3)).await, wait(100));
        }
    }

    #[proves("rate.refill", "time.clock")]
    #[needs(Rates, Clock)]
    async fn a_start_is_granted_when_the_wait_is_over_and_not_before(cx: &Cx) {
        let node = cx.node().await;
        // The interval between starts is not a whole number of milliseconds.
        let rate = Rate::new(3, SECOND).burst(2);
        assert_eq!(take_all(&node, &[("k", rate); 3]).await, [Granted, Granted, wait(334)]);
        cx.advance(333 * MILLI).await;
        assert_eq!(take(&node, "k", rate).await, wait(1));
        cx.advance(MILLI).await;
        assert_eq!(take(&node, "k", rate).await, Granted);
        assert_eq!(take(&node, "k", rate).await, wait(333));
        // Unused starts do not accumulate beyond the burst.
        cx.advance(HOUR).await;
        assert_eq!(take_all(&node, &[("k", rate); 3]).await, [Granted, Granted, wait(334)]);
    }

    #[proves("rate.keys")]
    #[needs(Rates, Clock)]
    async fn keys_have_nothing_to_do_with_each_other(cx: &Cx) {
        let node = cx.node().await;
        for key in ["a", "A", "ä", "a b", "mail␟acme"] {
            assert_eq!(take(&node, key, ten(1)).await, Granted, "{key}");
        }
        let both = [("b", ten(1)), ("a", ten(1)), ("c", ten(2)), ("ä", ten(1))];
        assert_eq!(take_all(&node, &both).await, [Granted, wait(100), Granted, wait(100)]);
    }

    #[proves("rate.exact")]
    #[needs(Rates, Clock)]
    async fn a_call_that_names_a_key_again_and_again_is_answered_in_order(cx: &Cx) {
        let node = cx.node().await;
        let (k, other) = (("k", ten(2)), ("other", ten(1)));
        let answers = take_all(&node, &[k, other, k, k, other, k]).await;
        let expected = [Granted, Granted, Granted, wait(100), wait(100), wait(100)];
        assert_eq!(answers, expected);
        assert_eq!(take_all(&node, &[]).await, []);
    }

    #[proves("rate.exact")]
    #[needs(Rates, Clock)]
    async fn of_many_takers_at_once_as_many_are_granted_as_the_burst_has(cx: &Cx) {
        let nodes = cx.nodes(4).await;
        for round in 0..5 {
            let granted = race(8, |racer| {
                let node = nodes[racer % 4].sibling();
                async move {
                    let mut granted = 0;
                    for _ in 0..5 {
                        let (k, other) = (("k", ten(7)), ("other", ten(7)));
                        // Each racer takes two keys, in different orders, so that racers conflict.
                        let both = if racer % 2 == 0 { [k, other] } else { [other, k] };
                        let answers = take_all(&node, &both).await;
                        granted += answers.iter().filter(|answer| **answer == Granted).count();
                    }
                    granted
                }
            })
            .await;
            assert_eq!(granted.iter().sum::<usize>(), 14, "round {round}");
            cx.advance(MINUTE).await;
        }
    }

    #[proves("rate.change")]
    #[needs(Rates, Clock)]
    async fn another_rate_holds_from_its_first_request_on(cx: &Cx) {
        let node = cx.node().await;
        let slow = Rate::new(1, HOUR);
        assert_eq!(take(&node, "k", slow).await, Granted);
        assert_eq!(take(&node, "k", slow).await, RateAnswer::Wait(HOUR));
        // The faster rate shortens the wait of an hour, but earlier starts still count.
        assert_eq!(take(&node, "k", ten(1)).await, wait(100));
        cx.advance(99 * MILLI).await;
        assert_eq!(take(&node, "k", ten(1)).await, wait(1));
        cx.advance(MILLI).await;
        assert_eq!(take(&node, "k", ten(1)).await, Granted);
        // A larger burst applies at once. With a smaller burst, a request waits until earlier
        // starts no longer count.
        assert_eq!(take_all(&node, &[("k", ten(3)); 3]).await, [Granted, Granted, wait(100)]);
        assert_eq!(take(&node, "k", ten(1)).await, wait(100));
    }

    #[proves("rate.exact", "time.clock")]
    #[needs(Rates, Clock)]
    async fn no_key_waits_long_for_a_clock_that_was_set_back(cx: &Cx) {
        let node = cx.node().await;
        assert_eq!(take(&node, "k", ten(1)).await, Granted);
        cx.set_back(HOUR).await;
        assert_eq!(take(&node, "k", ten(1)).await, wait(100));
        cx.advance(100 * MILLI).await;
        assert_eq!(take(&node, "k", ten(1)).await, Granted);
    }

    #[proves("rate.forget")]
    #[needs(Rates, Clock)]
    async fn only_keys_that_are_as_if_unused_are_forgotten(cx: &Cx) {
        let node = cx.node().await;
        for key in ["a", "b", "c"] {
            take(&node, key, ten(1)).await;
        }
        let slow = Rate::new(1, HOUR).burst(2);
        take(&node, "slow", slow).await;
        let rates = rates_of(&node);
        assert_eq!(ok(rates.forget_idle(10).await), 0);
        cx.advance(100 * MILLI).await;
        assert_eq!(ok(rates.forget_idle(2).await), 2);
        assert_eq!(ok(rates.forget_idle(2).await), 1);
        assert_eq!(ok(rates.forget_idle(2).await), 0);
        let expected = RateAnswer::Wait(HOUR - 100 * MILLI);
        assert_eq!(take_all(&node, &[("slow", slow); 2]).await, [Granted, expected]);
        assert_eq!(take_all(&node, &[("a", ten(1)); 2]).await, [Granted, wait(100)]);
    }

    #[proves("rate.forget", "time.precision")]
    #[needs(Rates, Clock)]
    async fn a_key_is_kept_until_the_millisecond_it_is_as_if_unused(cx: &Cx) {
        let node = cx.node().await;
        let rates = rates_of(&node);
        // The key `whole` counts as unused again after 100 ms, and the key `odd` after 333.3 ms.
        take(&node, "whole", ten(1)).await;
        take(&node, "odd", Rate::new(3, SECOND)).await;
        for (passed, forgotten) in [(99, 0), (1, 1), (233, 0), (1, 1)] {
            cx.advance(Duration::from_millis(passed)).await;
            assert_eq!(ok(rates.forget_idle(10).await), forgotten, "unexpected number of deleted rates after {passed} ms more");
        }
    }

    #[proves("rate.exact", "limits.batch")]
    #[needs(Rates)]
    async fn rates_that_make_no_sense_are_refused_and_nothing_is_counted(cx: &Cx) {
        let node = cx.node().await;
        let rates = rates_of(&node);
        let hourly = RateRequest::new(name("k"), Rate::new(1, HOUR));
        let bad = |rate| [hourly.clone(), RateRequest::new(name("k"), rate)];
        assert_refused(rates.take(&bad(Rate::new(0, SECOND))).await, "limit");
        assert_refused(rates.take(&bad(ten(0))).await, "burst");
        assert_refused(rates.take(&bad(Rate::new(9, Duration::ZERO))).await, "per");
        let many = vec![hourly.clone(); ratchet_core::limits::MAX_BATCH + 1];
        assert_refused(rates.take(&many).await, "requests");
        assert_refused(rates.forget_idle(0).await, "limit");
        assert_eq!(ok(rates.take(&[hourly]).await), [Granted]);
    }
}
