//! `/cluster/status` and `/cluster/nodes`.

use std::sync::Arc;

use ratchet_core::model::{Heartbeat, NodeStatus};
use ratchet_core::schedule::ZoneData;
use ratchet_core::store::NodeStore;
use ratchet_core::{CircuitBreaker, Job, MemoryStore, Name, NewJob, NodeId, Ratchet};
use ratchet_http::Api;
use serde_json::{Value, json};

use crate::kit::{Flaky, Nap, Running, SECOND, build, builder, get, node, until, until_status};

#[tokio::test(start_paused = true)]
async fn a_node_says_what_it_is_to_the_cluster() {
    let store = MemoryStore::new();
    let (one, other) = (node(store.clone(), "one"), node(store.clone(), "other"));
    let api = Api::builder(one.client().clone())
        .node(&one)
        .versions(["settings"])
        .build()
        .unwrap();
    let router = api.router();
    let first = Running::start(&one);
    until_status(&router, "/leader", 200).await;
    let status = get(&router, "/cluster/status").await.json();
    assert_eq!(status["role"], "single-node");
    assert_eq!(status["clustered"], false);
    assert_eq!(status["writes"], false);
    assert_eq!(status["backend"], "memory");
    let own = &status["node"];
    assert_eq!(
        (&own["label"], &own["status"]),
        (&json!("one"), &json!("active"))
    );
    assert_eq!(own["id"], one.id().to_string());
    assert_eq!(own["capacity"], one.capacity());
    let term = one.leadership("maintenance").unwrap().term().unwrap().0;
    let expected = json!([{"role": "maintenance", "is_leader": true, "term": term}]);
    assert_eq!(status["leadership"], expected);

    let second = Running::start(&other);

    let version = one.client().bump("settings").await.unwrap();
    let clustered = |status: &Value| {
        status["clustered"] == true && status["versions"] != json!({"settings": 0})
    };
    let status = until(&router, "/cluster/status", clustered).await;
    assert_eq!(status["role"], "primary");
    assert_eq!(status["versions"], json!({"settings": version}));
    let others = Api::builder(other.client().clone())
        .node(&other)
        .build()
        .unwrap();
    let role = |status: &Value| status["role"] == "standby" && status["clustered"] == true;
    until(&others.router(), "/cluster/status", role).await;
    first.left().await;
    second.left().await;
}

#[tokio::test(start_paused = true)]
async fn circuit_breakers_are_shown_for_the_own_node_and_if_open_for_all() {
    let store = MemoryStore::new();
    let breaker = CircuitBreaker::new().min_attempts(2).open_for(60 * SECOND);
    let node = build(builder(store).circuit_breaker::<Nap>(breaker));
    let api = Api::builder(node.client().clone()).node(&node);
    let router = api.build().unwrap().router();
    let running = Running::start(&node);
    let status = until(&router, "/cluster/status", |_| true).await;
    let closed = json!([{
        "kind": "nap", "state": "closed", "attempts": 0, "failures": 0, "probe_in_ms": null,
    }]);
    assert_eq!(status["node"]["breakers"], closed);
    for _ in 0..3 {
        node.enqueue(Nap { ms: 1, fails: true }.into_job())
            .await
            .unwrap();
    }
    let open = |status: &Value| status["node"]["breakers"][0]["state"] == "open";
    let status = until(&router, "/cluster/status", open).await;
    assert!(status["node"]["breakers"][0]["probe_in_ms"].is_u64());
    let published = |cluster: &Value| cluster["nodes"][0]["open_breakers"] == json!(["nap"]);
    until(&router, "/cluster/nodes", published).await;
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_node_is_no_standby() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store.clone()));
    let router = Api::builder(client).build().unwrap().router();
    let alone = until(&router, "/cluster/status", |_| true).await;
    assert_eq!(alone["role"], "no-node");
    let node = node(store, "one");
    let running = Running::start(&node);
    let clustered = |status: &Value| status["clustered"] == true;
    let status = until(&router, "/cluster/status", clustered).await;
    assert_eq!(
        (&status["role"], &status["node"]),
        (&json!("no-node"), &Value::Null)
    );
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn all_nodes_are_shown_and_each_role_has_one_leader_at_most() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store.clone()));
    let api = Api::builder(client).build().unwrap();
    let router = api.router();
    let (one, other) = (node(store.clone(), "one"), node(store.clone(), "other"));
    let first = Running::start(&one);
    let led = |cluster: &Value| !cluster["leaders"].as_array().unwrap().is_empty();
    let cluster = until(&router, "/cluster/nodes", led).await;
    assert_eq!(cluster["leaders"][0]["label"], "one");
    assert_eq!(cluster["leaders"][0]["node"], one.id().to_string());
    assert!(cluster["leaders"][0]["expires_in_ms"].as_u64().unwrap() > 0);
    assert_eq!(cluster["nodes"][0]["kinds"], json!(["nap"]));
    assert_eq!(cluster["nodes"][0]["leads"], json!(["maintenance"]));
    let zones = ZoneData::in_use();
    assert_eq!(
        cluster["nodes"][0]["zone_data"],
        json!({"source": zones.source, "version": zones.version})
    );
    assert_eq!(cluster["nodes"][0]["clock_skew_ms"], Value::Null);

    let second = Running::start(&other);
    let two = |cluster: &Value| cluster["nodes"].as_array().unwrap().len() == 2;
    until(&router, "/cluster/nodes", two).await;
    first.left().await;
    let of = |cluster: &Value, label: &str| {
        let nodes = cluster["nodes"].as_array().unwrap();
        nodes
            .iter()
            .find(|node| node["label"] == label)
            .unwrap()
            .clone()
    };
    let handed = |cluster: &Value| {
        of(cluster, "one")["status"] == "left" && cluster["leaders"][0]["label"] == "other"
    };
    let cluster = until(&router, "/cluster/nodes", handed).await;
    assert_eq!(of(&cluster, "one")["live"], false);
    assert_eq!(cluster["leaders"].as_array().unwrap().len(), 1);
    second.left().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_crashed_is_not_shown_when_its_lease_is_over() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store.clone()));
    let api = Api::builder(client).build().unwrap();
    let router = api.router();
    let crashing = node(store, "crashing");
    let run = tokio::spawn({
        let node = crashing.clone();
        async move { node.run().await }
    });
    let led = |cluster: &Value| cluster["leaders"][0]["label"] == "crashing";
    until(&router, "/cluster/nodes", led).await;
    run.abort();
    let nobody = |cluster: &Value| cluster["leaders"][0]["node"] == Value::Null;
    let cluster = until(&router, "/cluster/nodes", nobody).await;
    assert_eq!(cluster["leaders"][0]["expires_in_ms"], Value::Null);
    assert!(cluster["leaders"][0]["term"].as_u64().unwrap() > 0);
    let silent = |cluster: &Value| cluster["nodes"][0]["live"] == false;
    until(&router, "/cluster/nodes", silent).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_displaced_does_not_lead_while_its_lease_lasts() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store.clone()));
    let api = Api::builder(client).build().unwrap();
    let router = api.router();
    let crashing = node(store.clone(), "same");
    let run = tokio::spawn({
        let node = crashing.clone();
        async move { node.run().await }
    });
    let led = |cluster: &Value| cluster["leaders"][0]["label"] == "same";
    until(&router, "/cluster/nodes", led).await;
    run.abort();
    let again = node(store.clone(), "same");
    let running = Running::start(&again);
    let of = |cluster: &Value, id: String| {
        let nodes = cluster["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["id"] == id).cloned()
    };
    let displaced =
        |cluster: &Value| of(cluster, crashing.id().to_string()).unwrap()["status"] == "dead";
    let cluster = until(&router, "/cluster/nodes", displaced).await;
    // The lease of the displaced node has not expired yet: the store still names this node as the
    // leader.
    let client = again.client();
    assert_eq!(
        client.leaders(&[]).await.unwrap()[0].node,
        Some(crashing.id())
    );
    assert_eq!(cluster["leaders"][0]["node"], Value::Null);
    assert_eq!(cluster["leaders"][0]["expires_in_ms"], Value::Null);
    let dead = of(&cluster, crashing.id().to_string()).unwrap();
    assert_eq!(dead["leads"], json!([]));
    let takes_over = |cluster: &Value| cluster["leaders"][0]["node"] == again.id().to_string();
    until(&router, "/cluster/nodes", takes_over).await;
    running.left().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_database_status_answers_and_nodes_do_not() {
    let store = Flaky::new();
    let node = node(store.store.clone(), "a");
    let api = Api::builder(node.client().clone())
        .node(&node)
        .build()
        .unwrap();
    let router = api.router();
    let _running = Running::start(&node);
    until_status(&router, "/cluster/nodes", 200).await;
    store.take_away(true);
    tokio::time::sleep(20 * SECOND).await;
    let answer = get(&router, "/cluster/nodes").await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["code"]),
        (503, &json!("unavailable"))
    );
    assert_eq!(get(&router, "/cluster/status").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_nodes_and_the_queues_come_in_pages() {
    let store = MemoryStore::new();
    let client = Ratchet::client(Arc::new(store.clone()));
    for number in 0..5 {
        let label = Name::new("label", format!("n{number}")).unwrap();
        let beat = Heartbeat::new(NodeId::new(), label, NodeStatus::Active, SECOND);
        store.heartbeat(&beat).await.unwrap();
        let job = NewJob::new("nap", &1).queue(&format!("q{number}"));
        client.enqueue(job).await.unwrap();
    }
    let api = Api::builder(client).build().unwrap();
    let router = api.router();
    let five = |answer: &Value| answer["queues"].as_array().unwrap().len() == 5;
    until(&router, "/api/queues", five).await;
    for (path, items, key) in [
        ("/cluster/nodes", "nodes", "id"),
        ("/api/queues", "queues", "name"),
    ] {
        let (mut after, mut sizes, mut keys) = (String::new(), Vec::new(), Vec::new());
        while sizes.len() < 4 {
            let page = get(&router, &format!("{path}?limit=2{after}")).await.json();
            let found = page[items].as_array().unwrap().clone();
            sizes.push(found.len());
            keys.extend(
                found
                    .iter()
                    .map(|item| item[key].as_str().unwrap().to_owned()),
            );
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(sizes, [2, 2, 1], "{path}");
        assert!(keys.is_sorted() && keys.len() == 5, "{path}: {keys:?}");
        let whole = get(&router, path).await.json();
        assert_eq!(whole[items].as_array().unwrap().len(), 5);
        assert_eq!(whole["next"], Value::Null);
        assert_eq!(get(&router, &format!("{path}?limit=201")).await.status, 422);
    }
}
