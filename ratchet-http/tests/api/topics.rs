//! Queues, recurring definitions, batches, permits, locks and nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::memory::Fault;
use ratchet_core::schedule::{Misfire, Overlap};
use ratchet_core::store::{
    JobStore, LockStore, NodeStore, QueueStore, Store, StoreInfo, VersionStore,
};
use ratchet_core::{BatchId, MemoryStore, Name, NewJob, NodeId, Recurring, SharedStore};
use serde_json::{Value, json};

use crate::kit::{self, World, until};

#[tokio::test]
async fn a_paused_queue_is_seen_as_such_at_once() {
    let world = World::new();
    world.enqueue(NewJob::new("k", &1).queue("mail")).await;
    let paused = async |name: &str| {
        let queues = world.get("/api/queues").await.ok();
        let queues = queues["queues"].as_array().unwrap().clone();
        let queue = queues.iter().find(|queue| queue["name"] == name);
        queue.is_some_and(|queue| queue["paused"] == true)
    };
    let changed = |changed: bool| json!({ "changed": changed });
    let pause = "/api/queues/mail/pause";
    assert_eq!(world.post(pause).await.ok(), changed(true));
    assert_eq!(world.post(pause).await.ok(), changed(false));
    assert!(paused("mail").await);
    assert_eq!(
        world.post("/api/queues/mail/resume").await.ok(),
        changed(true)
    );
    assert!(!paused("mail").await);
    // A queue can be paused before it has jobs, whatever its name is.
    assert_eq!(
        world.post("/api/queues/a%2Fb/pause").await.ok(),
        changed(true)
    );
    until("the paused queue is listed", || paused("a/b")).await;
    world.post("/api/queues/%20/pause").await.invalid("name");
}

#[tokio::test]
async fn pauses_are_listed_with_who_when_and_why() {
    let world = World::new();
    assert_eq!(world.get("/api/pauses").await.ok(), json!({ "pauses": [] }));
    let why = json!({ "by": "alice", "reason": "the provider is down" });
    let pause = "/api/kinds/charge%2Fcard/pause";
    assert_eq!(world.post_json(pause, &why).await.ok()["changed"], true);
    let other = json!({ "by": "bob" });
    assert_eq!(world.post_json(pause, &other).await.ok()["changed"], false);
    world.post("/api/queues/mail/pause").await.ok();
    let listed = world.get("/api/pauses").await.ok();
    let at = |index: usize| listed["pauses"][index]["paused_at"].clone();
    let expected = json!([
        { "scope": "queue", "name": "mail", "paused_at": at(0), "by": null, "reason": null },
        {
            "scope": "kind", "name": "charge/card", "paused_at": at(1), "by": "alice",
            "reason": "the provider is down",
        },
    ]);
    assert_eq!(listed["pauses"], expected);
    assert!(at(0).is_string() && at(1).is_string());
    // A paused kind does not make the queues of its jobs paused.
    world.enqueue(NewJob::new("charge/card", &1)).await;
    until("the queue is listed", || async {
        let queues = world.get("/api/queues").await.ok();
        let queues = queues["queues"].as_array().unwrap().clone();
        let queue = queues.iter().find(|queue| queue["name"] == "default");
        queue.is_some_and(|queue| queue["paused"] == false && queue["overdue_ms"].is_number())
    })
    .await;
    for (field, body) in [
        ("by", json!({ "by": "" })),
        ("reason", json!({ "reason": "x".repeat(1_025) })),
        ("reason", json!({ "reason": 1 })),
        ("nonsense", json!({ "nonsense": 1 })),
    ] {
        world
            .post_json("/api/queues/q/pause", &body)
            .await
            .invalid(field);
    }
    let resume = "/api/kinds/charge%2Fcard/resume";
    assert_eq!(world.post(resume).await.ok()["changed"], true);
    assert_eq!(world.post(resume).await.ok()["changed"], false);
    world.post("/api/kinds/%20/resume").await.invalid("name");
}

#[tokio::test]
async fn recurring_definitions_are_told_paused_resumed_and_triggered() {
    let world = World::new();
    let recurring = world.client.recurring();
    let nightly = Recurring::cron("0 3 * * *")
        .zone("Europe/Berlin")
        .job(NewJob::new("report", &1).queue("reports"))
        .misfire(Misfire::CatchUp(7))
        .overlap(Overlap::Skip)
        .named("nightly");
    recurring.put(nightly).await.unwrap();
    let often = Recurring::every(Duration::from_secs(3_600)).job(NewJob::new("k", &1));
    recurring.put(often.named("often")).await.unwrap();
    let nightly = world.get("/api/recurring/nightly").await.ok();
    for (field, value) in [
        ("kind", json!("report")),
        ("queue", json!("reports")),
        ("schedule", json!("0 3 * * *")),
        ("zone", json!("Europe/Berlin")),
        ("misfire", json!("catch_up")),
        ("catch_up", json!(7)),
        ("overlap", json!("skip")),
        ("paused", json!(false)),
        ("last_at", json!(null)),
    ] {
        assert_eq!(nightly[field], value, "{field}");
    }
    assert!(nightly["next_at"].is_string());
    let page = world.get("/api/recurring?limit=1").await.ok();
    assert_eq!(
        (&page["recurring"][0]["name"], &page["next"]),
        (&json!("nightly"), &json!("nightly"))
    );
    let page = world.get("/api/recurring?limit=1&after=nightly").await.ok();
    assert_eq!(page["recurring"][0]["interval_ms"], 3_600_000);
    assert_eq!(page["next"], Value::Null);
    let pause = "/api/recurring/nightly/pause";
    assert_eq!(world.post(pause).await.ok()["changed"], true);
    assert_eq!(world.post(pause).await.ok()["changed"], false);
    let trigger = "/api/recurring/nightly/trigger";
    let first = world.post(trigger).await.ok();
    assert_eq!(first["created"], true);
    // The definition allows no overlap, so the trigger returns the existing job.
    let again = world.post(trigger).await.ok();
    assert_eq!(again, json!({"job": first["job"], "created": false}));
    assert_eq!(world.count().await, 1);
    for action in ["pause", "resume", "trigger"] {
        let uri = format!("/api/recurring/none/{action}");
        world.post(&uri).await.refused(404, "not_found");
    }
    world
        .get("/api/recurring/none")
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn batches_are_paged_the_newest_first() {
    let world = World::new();
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.insert(0, world.client.create_batch().await.unwrap().to_string());
    }
    let mut walked: Vec<String> = Vec::new();
    let mut uri = "/api/batches?limit=2".to_owned();
    loop {
        let page = world.get(&uri).await.ok();
        let batches = page["batches"].as_array().unwrap();
        walked.extend(
            batches
                .iter()
                .map(|one| one["id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        uri = format!("/api/batches?limit=2&before={next}");
    }
    assert_eq!(walked, expected);
    let none = format!("/api/batches/{}", BatchId::new());
    world.get(&none).await.refused(404, "not_found");
    world
        .post(&format!("{none}/cancel"))
        .await
        .refused(404, "not_found");
}

#[tokio::test]
async fn locks_and_permits_are_listed() {
    let world = World::new();
    let name = |text| Name::new("lock", text).unwrap();
    let locks = world.client.store().locks();
    let second = Duration::from_secs(60);
    locks
        .acquire(&name("a"), &name("me"), second)
        .await
        .unwrap();
    world.client.set_permits("gpu", 3).await.unwrap();
    let listed = world.get("/api/locks").await.ok();
    let lock = &listed["locks"][0];
    assert_eq!((&lock["name"], &lock["owner"]), (&json!("a"), &json!("me")));
    assert!(lock["expires_in_ms"].as_u64().unwrap() > 50_000);
    let listed = world.get("/api/permits").await.ok();
    assert_eq!(
        listed["permits"],
        json!([{"resource": "gpu", "max": 3, "held": 0}])
    );
}

#[tokio::test]
async fn limits_of_fair_keys_are_set_listed_and_removed() {
    let world = World::new();
    let (path, set) = ("/api/fair-limits", "/api/fair-limits/set");
    for (body, changed) in [
        (json!({"queue": "mail*", "max": 4}), true),
        (json!({"queue": "mail*", "max": 4}), false),
        (json!({"queue": "mail", "key": "tenant:7", "max": 0}), true),
    ] {
        let answer = world.post_json(set, &body).await.ok();
        assert_eq!(answer["changed"], changed, "{body}");
    }
    let all = json!([
        {"queue": "mail", "key": "tenant:7", "max": 0},
        {"queue": "mail*", "key": null, "max": 4},
    ]);
    assert_eq!(world.get(path).await.ok()["limits"], all);
    let removed = json!({"queue": "mail*", "max": null});
    let answer = world.post_json(set, &removed).await.ok();
    assert_eq!(answer["changed"], true);
    let left = world.get(path).await.ok();
    assert_eq!(left["limits"].as_array().unwrap().len(), 1);
    let long = "x".repeat(129);
    for (body, field) in [
        (json!({"queue": "", "max": 1}), "queue"),
        (json!({"queue": long, "max": 1}), "queue"),
        (json!({"queue": "q", "key": long, "max": 1}), "fair_key"),
        (json!({"queue": "q*", "key": "k", "max": 1}), "queue"),
        (json!({"queue": "q", "max": -1}), "max"),
    ] {
        world.post_json(set, &body).await.invalid(field);
    }
    // A body without a maximum removes nothing.
    let lacking = world.post_json(set, &json!({"queue": "mail"})).await;
    lacking.refused(422, "invalid");
}

#[tokio::test]
async fn the_busiest_fair_keys_are_counted() {
    let world = World::new();
    for key in ["noisy", "quiet", "noisy"] {
        let job = NewJob::new("k", &1).queue("render").fair_key(key);
        world.enqueue(job).await;
    }
    world.enqueue(NewJob::new("k", &1)).await;
    let all = world.get("/api/fair-keys").await.ok();
    let keys = json!([
        {"queue": "render", "key": "noisy", "running": 0, "waiting": 2},
        {"queue": "render", "key": "quiet", "running": 0, "waiting": 1},
    ]);
    assert_eq!(all, json!({"keys": keys, "complete": true}));
    let first = world.get("/api/fair-keys?limit=1").await.ok();
    assert_eq!(first["keys"].as_array().unwrap().len(), 1);
    for limit in ["0", "201"] {
        let uri = format!("/api/fair-keys?limit={limit}");
        world.get(&uri).await.invalid("limit");
    }
}

#[tokio::test]
async fn a_node_is_drained_once_and_an_ended_one_conflicts() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let world = World::over(Arc::clone(&store));
    let node = ratchet_core::Ratchet::builder(store)
        .register::<kit::Act>()
        .heartbeat_interval(Duration::from_millis(50))
        .build()
        .unwrap();
    let uri = format!("/api/nodes/{}/drain", node.id());
    world.post(&uri).await.refused(404, "not_found");
    let runs = tokio::spawn({
        let node = node.clone();
        async move { node.run().await }
    });
    until("the node is known", || async {
        world
            .client
            .nodes()
            .await
            .unwrap()
            .iter()
            .any(|one| one.node == node.id())
    })
    .await;
    let first = world.post(&uri).await.ok();
    assert_eq!(first["changed"], true);
    let ended = tokio::time::timeout(Duration::from_secs(20), runs).await;
    ended.unwrap().unwrap().unwrap();
    world.post(&uri).await.refused(409, "conflict");
    let other = format!("/api/nodes/{}/drain", NodeId::new());
    world.post(&other).await.refused(404, "not_found");
    world.post("/api/nodes/me/drain").await.invalid("id");
}

/// A store without any optional capability.
#[derive(Debug)]
struct Plain(MemoryStore);

#[async_trait]
impl Store for Plain {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn jobs(&self) -> &dyn JobStore {
        self.0.jobs()
    }

    fn queues(&self) -> &dyn QueueStore {
        Store::queues(&self.0)
    }

    fn nodes(&self) -> &dyn NodeStore {
        Store::nodes(&self.0)
    }

    fn locks(&self) -> &dyn LockStore {
        self.0.locks()
    }

    fn versions(&self) -> &dyn VersionStore {
        Store::versions(&self.0)
    }
}

#[tokio::test]
async fn what_the_store_cannot_do_is_not_implemented() {
    let world = World::over(Arc::new(Plain(MemoryStore::new())));
    let batch = format!("/api/batches/{}", BatchId::new());
    for uri in [
        "/api/recurring",
        "/api/recurring/x",
        "/api/batches",
        &batch,
        "/api/permits",
        "/api/fair-limits",
    ] {
        world.get(uri).await.refused(501, "unsupported");
    }
    for uri in [
        "/api/recurring/x/trigger",
        "/api/recurring/x/pause",
        &format!("{batch}/cancel"),
    ] {
        world.post(uri).await.refused(501, "unsupported");
    }
    // If the store has no links, the graph contains only the job itself.
    let alone = world.enqueue(NewJob::new("k", &1)).await;
    let graph = world.get(&format!("/api/jobs/{alone}/graph")).await.ok();
    assert_eq!(graph["nodes"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable_and_its_words_stay_inside() {
    let store = MemoryStore::new().with_faults(|_| Fault::ErrorBeforeCommit);
    let world = World::over(Arc::new(store));
    let id = ratchet_core::JobId::new();
    for uri in [
        "/api/jobs".to_owned(),
        format!("/api/jobs/{id}"),
        format!("/api/jobs/{id}/history"),
        format!("/api/jobs/{id}/graph"),
        "/api/recurring".to_owned(),
        "/api/batches".to_owned(),
        "/api/locks".to_owned(),
        "/api/permits".to_owned(),
        "/api/pauses".to_owned(),
        "/api/fair-keys".to_owned(),
        "/api/fair-limits".to_owned(),
    ] {
        let answer = world.get(&uri).await;
        assert_eq!(answer.headers["retry-after"], "1", "{uri}");
        let problem = answer.refused(503, "unavailable");
        assert!(!problem.to_string().contains("injected"), "{problem}");
    }
    for uri in [
        format!("/api/jobs/{id}/cancel"),
        "/api/queues/q/pause".to_owned(),
        "/api/recurring/x/trigger".to_owned(),
        format!("/api/nodes/{}/drain", NodeId::new()),
    ] {
        world.post(&uri).await.refused(503, "unavailable");
    }
}
