//! Rates: keys that the TTL index deletes, and starts that are granted while the primary is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use ratchet_core::model::{RateAnswer, RateRequest};
use ratchet_core::store::{Acquired, RateStore, Store};
use ratchet_core::{Name, Rate};

use crate::faults::Fault;
use crate::open;
use crate::server::Space;

fn name(name: &str) -> Name {
    Name::new("name", name).unwrap()
}

fn fence(acquired: &Acquired) -> u64 {
    match acquired {
        Acquired::Acquired { fence } => fence.0,
        Acquired::Held(by) => panic!("{by:?} has it"),
    }
}

async fn expiring(space: &Space) -> Vec<String> {
    let mut expiring = Vec::new();
    for collection in space.database.list_collection_names().await.unwrap() {
        if !collection.starts_with(&space.prefix) {
            continue;
        }
        let indexes = space.database.collection::<Document>(&collection);
        let indexes: Vec<_> = indexes
            .list_indexes()
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        let expires = |index: &mongodb::IndexModel| {
            let options = index.options.as_ref();
            options.is_some_and(|options| options.expire_after.is_some())
        };
        if indexes.iter().any(expires) {
            expiring.push(collection);
        }
    }
    expiring
}

pub(crate) async fn the_server_forgets_idle_keys_and_no_fence(space: Arc<Space>) {
    let store = open(&space).await;
    assert_eq!(expiring(&space).await, [space.name("rates")]);
    let admin = space.database.client().database("admin");
    let often = doc! { "setParameter": 1, "ttlMonitorSleepSecs": 1 };
    admin.run_command(often).await.unwrap();
    let locks = store.locks();
    let hold = Duration::from_millis(1);
    let first = locks
        .acquire(&name("lock"), &name("one"), hold)
        .await
        .unwrap();
    // The state of one key expires in 50 ms, that of the other in two hours.
    let take = |key, rate| RateRequest::new(name(key), rate);
    let brief = take("brief", Rate::new(20, Duration::from_secs(1)));
    let long = take("long", Rate::new(1, Duration::from_secs(7_200)));
    let answers = store.take(&[brief, long.clone()]).await.unwrap();
    assert_eq!(answers, [RateAnswer::Granted, RateAnswer::Granted]);
    let rates = space.of_majority("rates");
    while rates
        .count_documents(doc! { "_id": "brief" })
        .await
        .unwrap()
        > 0
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(matches!(
        store.take(&[long]).await.unwrap()[0],
        RateAnswer::Wait(_)
    ));
    // The lock expired before the key did. The lock was not deleted, so its fences continue.
    let again = locks
        .acquire(&name("lock"), &name("two"), hold)
        .await
        .unwrap();
    assert!(fence(&again) > fence(&first));
}

pub(crate) async fn what_was_granted_before_a_loss_is_not_counted_again(space: Arc<Space>) {
    // From the third key on, the server reports that it is not the primary.
    let fault = Fault::new(&space, &["findAndModify"])
        .code(10_107)
        .behind(2);
    let store = fault.open(&space).await;
    let twice = || Rate::new(1, Duration::from_secs(7_200)).burst(2);
    let requests: Vec<_> = ["a", "b", "c"]
        .map(|key| RateRequest::new(name(key), twice()))
        .into();
    let fault = fault.set().await;
    let taking = tokio::spawn({
        let (store, requests) = (store.clone(), requests.clone());
        async move { store.take(&requests).await }
    });
    // The fail point is hit twice, because the driver retries once.
    fault.met(2).await;
    fault.lift().await;
    assert_eq!(taking.await.unwrap().unwrap(), [RateAnswer::Granted; 3]);
    // One of two starts is left for each key.
    assert_eq!(
        store.take(&requests).await.unwrap(),
        [RateAnswer::Granted; 3]
    );
}
