//! The shop in this process, on a SQLite file, with a clock that the test sets.

#![expect(clippy::unwrap_used, reason = "an error of a helper fails the test")]

use std::time::Duration;

use ratchet::sqlite::SqliteStore;
use ratchet::testing::{assert_enqueued, drain, perform};
use ratchet::{Delivered, Job, JobState, ManualClock, NewJob, Node, StoreError, StoreErrorKind};
use serde_json::json;
use shop_example::db::Db;
use shop_example::jobs::{Charge, Gateway};
use shop_example::orders::{APPROVAL, BIG, Order, approval};
use tempfile::TempDir;

const GATEWAY: Gateway = Gateway {
    latency: Duration::ZERO,
};

struct Shop {
    db: Db,
    node: Node,
    clock: ManualClock,
    _folder: TempDir,
}

impl Shop {
    async fn open() -> Self {
        let clock = ManualClock::new("2026-01-15T12:00:00Z".parse().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db").to_str().unwrap().to_owned();
        let store = SqliteStore::builder(&path)
            .manual_clock(clock.clone())
            .connect()
            .await
            .unwrap();
        let db = Db::on_sqlite(&path, store).unwrap();
        let node = shop_example::node(&db, GATEWAY).build().unwrap();
        node.declare_permits().await.unwrap();
        Self {
            db,
            node,
            clock,
            _folder: folder,
        }
    }

    async fn place(&self, id: &str, customer: &str, cents: i64) -> anyhow::Result<bool> {
        let order = Order {
            id: id.into(),
            customer: customer.into(),
            cents,
        };
        order.place(&self.db, self.node.client()).await
    }

    async fn status(&self, id: &str) -> String {
        self.db.order(id.into()).await.unwrap().unwrap().status
    }
}

#[tokio::test]
async fn a_small_order_goes_all_the_way_after_a_retry() {
    let shop = Shop::open().await;
    assert!(shop.place("o-1", "ada", 1_207).await.unwrap());
    assert!(
        !shop.place("o-1", "ada", 1_207).await.unwrap(),
        "expected a repeated request to place no second order"
    );

    let drained = drain(&shop.node).await.unwrap();
    assert_eq!(
        (drained.retried, drained.total()),
        (1, 1),
        "expected one retry, because the gateway is busy at the first attempt"
    );
    let drained = drain(&shop.node)
        .through(&shop.clock, Duration::from_secs(10))
        .await
        .unwrap();
    assert_eq!((drained.succeeded, drained.failed), (4, 0));
    assert_eq!(shop.status("o-1").await, "mailed");
}

#[tokio::test]
async fn a_big_order_is_shipped_once_it_is_approved() {
    let shop = Shop::open().await;
    shop.place("o-1", "ada", BIG).await.unwrap();
    drain(&shop.node).await.unwrap();
    assert_eq!(shop.status("o-1").await, "packed");
    assert_enqueued!(
        shop.node,
        kind = "ship",
        state = JobState::Blocked,
        count = 1
    );

    let delivered = shop
        .node
        .client()
        .signal(&approval("o-1"), &())
        .await
        .unwrap();
    assert!(matches!(delivered, Delivered::To(jobs) if jobs.len() == 1));
    drain(&shop.node).await.unwrap();
    assert_eq!(shop.status("o-1").await, "mailed");
}

#[tokio::test]
async fn a_big_order_without_approval_expires() {
    let shop = Shop::open().await;
    shop.place("o-1", "ada", BIG).await.unwrap();
    drain(&shop.node)
        .through(&shop.clock, APPROVAL)
        .await
        .unwrap();
    assert_eq!(shop.status("o-1").await, "expired");
    assert_enqueued!(
        shop.node,
        kind = "ship",
        state = JobState::Failed,
        count = 1
    );
    assert_enqueued!(
        shop.node,
        kind = "mail",
        state = JobState::Cancelled,
        count = 1
    );
}

#[tokio::test]
async fn one_customers_orders_are_packed_as_they_were_placed() {
    let shop = Shop::open().await;
    // The first charge is retried, and the second waits for it in the customer's lane.
    for (id, cents) in [("o-1", 1_207), ("o-2", 1_200)] {
        shop.place(id, "ada", cents).await.unwrap();
    }
    drain(&shop.node).await.unwrap();
    assert_enqueued!(shop.node, Charge { order, .. } if order == "o-2", lane = "ada", state = JobState::Blocked);

    drain(&shop.node)
        .through(&shop.clock, Duration::from_secs(10))
        .await
        .unwrap();
    for (id, place) in [("o-1", 1), ("o-2", 2)] {
        assert_eq!(
            shop.db.order(id.into()).await.unwrap().unwrap().packed,
            Some(place)
        );
    }
}

#[tokio::test]
async fn an_invalid_order_leaves_neither_a_row_nor_a_job() {
    let shop = Shop::open().await;
    let error = shop.place("o-1", "", 1_200).await.unwrap_err();
    let error = error.downcast_ref::<StoreError>().unwrap();
    assert_eq!(
        (error.kind(), error.to_string().contains("lane")),
        (StoreErrorKind::Invalid, true),
        "{error}"
    );
    assert_eq!(shop.db.order("o-1".into()).await.unwrap(), None);
    assert_eq!(drain(&shop.node).await.unwrap().total(), 0);
}

#[tokio::test]
async fn a_charge_that_runs_twice_charges_once() {
    let shop = Shop::open().await;
    for attempt in [1, 2] {
        let charge = Charge {
            order: "o-1".into(),
            customer: "ada".into(),
            cents: 1_200,
        };
        perform(charge)
            .with_client(shop.node.client())
            .state(shop.db.clone())
            .state(GATEWAY)
            .attempt(attempt)
            .await
            .unwrap();
    }
    assert_eq!(
        shop.db
            .number("SELECT COUNT(*) FROM charges", vec![])
            .await
            .unwrap(),
        1
    );
}

#[tokio::test]
async fn a_charge_of_the_last_release_runs_and_one_of_the_next_waits() {
    let shop = Shop::open().await;
    let payload = json!({ "order": "o-1", "customer": "ada", "amount": "12.50" });
    let old = NewJob::new(Charge::KIND, &payload)
        .queue("cards")
        .payload_version(1);
    let new = NewJob::new(Charge::KIND, &json!({ "euros": 9 }))
        .queue("cards")
        .payload_version(3);
    shop.node.client().enqueue_all(&[old, new]).await.unwrap();

    let drained = drain(&shop.node).await.unwrap();
    assert_eq!(
        (drained.succeeded, drained.snoozed, drained.failed),
        (4, 1, 0)
    );
    assert_eq!(
        shop.db
            .number("SELECT cents FROM charges", vec![])
            .await
            .unwrap(),
        1_250
    );
}

#[tokio::test]
async fn the_report_of_a_day_counts_what_was_shipped() {
    let shop = Shop::open().await;
    shop.place("o-1", "ada", 1_200).await.unwrap();
    drain(&shop.node).await.unwrap();
    let day = Duration::from_secs(86_400);
    let drained = drain(&shop.node).through(&shop.clock, day).await.unwrap();
    assert_eq!(drained.succeeded, 1);
    assert_enqueued!(
        shop.node,
        kind = "daily_report",
        state = JobState::Succeeded
    );
    assert_eq!(
        shop.db
            .number("SELECT shipped FROM reports", vec![])
            .await
            .unwrap(),
        1
    );
}
