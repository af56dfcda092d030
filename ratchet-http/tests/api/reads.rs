//! Reads of jobs: pages, filters, payloads, history and graphs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::model::{ClaimRequest, Outcome, Settlement};
use ratchet_core::{
    BatchCondition, Condition, JobId, JobState, MemoryStore, NewJob, NodeId, Priority, Workflow,
};
use ratchet_http::{Access, Limits, Payloads};
use serde_json::{Value, json};

use crate::kit::{self, Allow, HOSTILE, World, allow_all, job_in};

fn ids(page: &Value) -> Vec<String> {
    let jobs = page["jobs"].as_array().unwrap().iter();
    jobs.map(|job| job["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn walking_the_pages_visits_every_job_once_in_both_orders() {
    let world = World::new();
    let all: Vec<NewJob> = (0..23).map(|n| NewJob::new("k", &n)).collect();
    world.client.enqueue_all(&all).await.unwrap();
    let mut expected: Vec<String> = all.iter().map(|job| job.id().to_string()).collect();
    for order in ["oldest", "newest"] {
        let mut walked = Vec::new();
        let mut uri = format!("/api/jobs?order={order}&limit=5");
        loop {
            let page = world.get(&uri).await.ok();
            let here = ids(&page);
            assert!(here.len() <= 5 && !here.is_empty());
            walked.extend(here);
            let Some(next) = page["next"].as_str() else {
                break;
            };
            uri = format!("/api/jobs?order={order}&limit=5&after={next}");
        }
        assert_eq!(walked, expected, "{order}");
        expected.reverse();
    }
}

#[tokio::test]
async fn filters_are_combined() {
    let world = World::new();
    let batch = world.client.create_batch().await.unwrap();
    let mail = || NewJob::new("mail", &1);
    let here = mail().queue("q").tag(HOSTILE).in_batch(batch);
    let others = [
        mail(),
        mail().queue("q"),
        NewJob::new("other", &1).queue("q"),
    ];
    world.client.enqueue_all(&others).await.unwrap();
    world.enqueue(here.clone()).await;
    let tag: String =
        percent_encoding::utf8_percent_encode(HOSTILE, percent_encoding::NON_ALPHANUMERIC)
            .to_string();
    let found = async |query: &str| {
        let uri = format!("/api/jobs?{query}");
        ids(&world.get(&uri).await.ok()).len()
    };
    assert_eq!(found("kind=mail").await, 3);
    assert_eq!(found("kind=mail&queue=q").await, 2);
    assert_eq!(found("queue=q&state=pending&state=running").await, 3);
    assert_eq!(found("state=failed,running").await, 0);
    assert_eq!(found(&format!("tag={tag}")).await, 1);
    assert_eq!(found(&format!("batch={batch}&kind=mail")).await, 1);
    assert_eq!(found(&format!("batch={}", JobId::new())).await, 0);
}

#[tokio::test]
async fn parameters_that_mean_nothing_are_refused_by_name() {
    let world = World::new();
    for (field, value) in [
        ("state", "dead"),
        ("state", ""),
        ("queue", ""),
        ("queue", "%00"),
        ("kind", "%20x"),
        ("tag", &"x".repeat(129)),
        ("batch", "1"),
        ("after", "newest"),
        ("order", "random"),
        ("limit", "0"),
        ("limit", "-1"),
        ("limit", "201"),
        ("limit", "99999999999999999999999999"),
        ("offset", "1"),
    ] {
        let uri = format!("/api/jobs?{field}={value}");
        world.get(&uri).await.invalid(field);
    }
    let answer = world.get("/api/jobs?queue=%ff").await;
    answer.refused(400, "malformed");
    world.get("/api/jobs/1").await.invalid("id");
    world.get("/api/jobs/%F0%9F%92%A9").await.invalid("id");
}

#[tokio::test]
async fn a_page_is_as_long_as_the_limits_allow() {
    let world = World::built(Arc::new(MemoryStore::new()), |builder| {
        builder.limits(Limits::default().page(3))
    });
    let all: Vec<NewJob> = (0..5).map(|n| NewJob::new("k", &n)).collect();
    world.client.enqueue_all(&all).await.unwrap();
    let page = world.get("/api/jobs").await.ok();
    assert_eq!(ids(&page).len(), 3);
    assert!(page["next"].is_string());
    world.get("/api/jobs?limit=4").await.invalid("limit");
    world.get("/api/batches?limit=4").await.invalid("limit");
    world.get("/api/recurring?limit=4").await.invalid("limit");
}

#[tokio::test]
async fn payloads_are_shown_where_the_program_and_the_authorizer_say_so() {
    let store: ratchet_core::SharedStore = Arc::new(MemoryStore::new());
    let hidden = World::built(Arc::clone(&store), |builder| {
        builder.authorize(Allow(allow_all))
    });
    let denied = World::built(Arc::clone(&store), |builder| {
        let not_payloads = |access| access != Access::Payload;
        builder
            .payloads(Payloads::Shown)
            .authorize(Allow(not_payloads))
    });
    let without = World::built(Arc::clone(&store), |builder| {
        builder.payloads(Payloads::Shown).allow_remote()
    });
    let shown = World::built(Arc::clone(&store), |builder| {
        builder.payloads(Payloads::Shown).authorize(Allow(|access| {
            access == Access::Read || access == Access::Payload
        }))
    });
    let id = shown.enqueue(NewJob::new("k", "the secret")).await;
    for world in [&hidden, &denied, &without] {
        let answer = world.get(&format!("/api/jobs/{id}")).await;
        assert!(!String::from_utf8_lossy(&answer.bytes).contains("secret"));
        assert_eq!(answer.ok()["payload_hidden"], true);
    }
    let job = shown.get(&format!("/api/jobs/{id}")).await.ok();
    assert_eq!(job["payload"], "the secret");
    assert_eq!(job["payload_hidden"], false);
    let list = shown.get("/api/jobs").await;
    assert!(!String::from_utf8_lossy(&list.bytes).contains("secret"));
}

#[tokio::test]
async fn one_job_is_told_whole() {
    let world = World::new();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let job = NewJob::new("k", &json!({"deep": [1, 2.50]}))
        .priority(Priority::High)
        .queue("q")
        .lane("l")
        .capability("gpu")
        .unique_key(HOSTILE)
        .fair_key(HOSTILE)
        .idempotency_key("i")
        .tag("t")
        .timeout(Duration::from_millis(1_500))
        .trace(ratchet_core::TraceContext::new(parent).unwrap());
    let id = world.enqueue(job).await;
    let job = world.get(&format!("/api/jobs/{id}")).await.ok();
    for (field, value) in [
        ("id", json!(id.to_string())),
        ("kind", json!("k")),
        ("queue", json!("q")),
        ("lane", json!("l")),
        ("state", json!("pending")),
        ("priority", json!("high")),
        ("capability", json!("gpu")),
        ("unique_key", json!(HOSTILE)),
        ("fair_key", json!(HOSTILE)),
        ("idempotency_key", json!("i")),
        ("tags", json!(["t"])),
        ("timeout_ms", json!(1_500)),
        ("attempts", json!(0)),
        ("node", json!(null)),
        ("actions", json!(["cancel", "pause"])),
        ("payload", json!({"deep": [1, 2.5]})),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["trace"]["traceparent"], parent);
    assert_eq!(job["retry"]["max_attempts"], job["max_attempts"]);
    let created = job["created_at"].as_str().unwrap();
    assert!(created.ends_with('Z') && created.len() == "2026-01-01T00:00:00.000Z".len());
}

#[tokio::test]
async fn the_history_tells_how_claims_ended() {
    let world = World::new();
    let id = job_in(&world, JobState::Failed).await;
    let uri = format!("/api/jobs/{id}/history");
    let history = world.get(&uri).await.ok();
    let attempts = history["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0]["outcome"], "failed");
    assert_eq!(attempts[0]["error"], "it failed");
    let unclaimed = world.enqueue(NewJob::new("k", &1)).await;
    let none = world
        .get(&format!("/api/jobs/{unclaimed}/history"))
        .await
        .ok();
    assert_eq!(none["attempts"], json!([]));
    for path in ["", "/history", "/graph"] {
        let uri = format!("/api/jobs/{}{path}", JobId::new());
        world.get(&uri).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn of_a_long_history_the_end_is_told() {
    let world = World::built(Arc::new(MemoryStore::new()), |builder| {
        builder.limits(Limits::default().page(2))
    });
    let id = world.enqueue(NewJob::new("k", &1)).await;
    let jobs = world.client.store().jobs();
    for _ in 0..5 {
        let claim = ClaimRequest::new(NodeId::new(), 1);
        let claimed = jobs.claim_next_batch(&claim).await.unwrap();
        let released = Settlement::new(claimed[0].claim.token, Outcome::Released);
        jobs.settle(&[released]).await.unwrap();
    }
    let history = world.get(&format!("/api/jobs/{id}/history")).await.ok();
    let attempts = history["attempts"].as_array().unwrap();
    let seqs: Vec<&Value> = attempts.iter().map(|attempt| &attempt["seq"]).collect();
    assert_eq!(seqs, [&json!(4), &json!(5)]);
    assert_eq!(history["omitted"], 3);
}

#[tokio::test]
async fn the_lineage_is_told_in_both_directions_as_far_as_the_limit_goes() {
    let world = World::new();
    let batch = world.client.create_batch().await.unwrap();
    let flow = Workflow::new();
    let first = flow.add(NewJob::new("first", &1));
    let left = flow.add(NewJob::new("left", &1)).after(&first);
    let right = flow.add(NewJob::new("right", &1)).after_failure(&first);
    let last = flow
        .add(NewJob::new("last", &1))
        .after_all([&left])
        .after_end(&right)
        .after_batch(batch, BatchCondition::FailuresReach(3));
    let (first, left, right, last) = (first.id(), left.id(), right.id(), last.id());
    world.client.submit(flow).await.unwrap();
    let graph = world.get(&format!("/api/jobs/{left}/graph")).await.ok();
    let nodes = graph["nodes"].as_array().unwrap();
    assert_eq!(nodes[0]["id"], left.to_string());
    let found: BTreeSet<String> = nodes.iter().map(|node| node["id"].to_string()).collect();
    let all: BTreeSet<String> = [first, left, right, last]
        .iter()
        .map(|id| json!(id.to_string()).to_string())
        .chain([json!(batch.to_string()).to_string()])
        .collect();
    assert_eq!(found, all);
    assert_eq!(graph["truncated"], false);
    let edge = |from: String, to: JobId, condition: &str| json!({"from": from, "to": to.to_string(), "condition": condition, "state": "open"});
    let edges = graph["edges"].as_array().unwrap();
    for expected in [
        edge(first.to_string(), left, "succeeded"),
        edge(first.to_string(), right, "failed"),
        edge(left.to_string(), last, "succeeded"),
        edge(right.to_string(), last, "ended"),
        edge(batch.to_string(), last, "failures_reach 3"),
    ] {
        assert!(
            edges.contains(&expected),
            "expected the edge {expected}, found {edges:#?}"
        );
    }
    assert_eq!(edges.len(), 5);
    let some = world
        .get(&format!("/api/jobs/{left}/graph?limit=2"))
        .await
        .ok();
    assert_eq!(some["nodes"].as_array().unwrap().len(), 2);
    assert_eq!(some["truncated"], true);
    let alone = world.enqueue(NewJob::new("k", &1)).await;
    let one = world
        .get(&format!("/api/jobs/{alone}/graph?limit=1"))
        .await
        .ok();
    assert_eq!(
        (one["edges"].clone(), one["truncated"].clone()),
        (json!([]), json!(false))
    );
}

/// An in-memory store that counts its calls by operation, for jobs and links only.
fn counted() -> (Arc<MemoryStore>, Arc<Mutex<Vec<&'static str>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let called = Arc::clone(&calls);
    let store = MemoryStore::new().with_faults(move |operation| {
        if ["get", "parents_of", "children_of"].contains(&operation) {
            called.lock().unwrap().push(operation);
        }
        Fault::None
    });
    (Arc::new(store), calls)
}

#[tokio::test]
async fn the_lineage_is_read_in_few_calls() {
    let (store, calls) = counted();
    let world = World::over(store);
    let asked = async |uri: String| {
        calls.lock().unwrap().clear();
        let graph = world.get(&uri).await.ok();
        let mut calls = calls.lock().unwrap().clone();
        calls.sort_unstable();
        (graph, calls)
    };
    let alone = world.enqueue(NewJob::new("k", &1)).await;
    let (_, calls) = asked(format!("/api/jobs/{alone}/graph")).await;
    assert_eq!(calls, ["children_of", "get"]);

    let flow = Workflow::new();
    let first = flow.add(NewJob::new("first", &1));
    let middle: Vec<_> = (0..20)
        .map(|_| flow.add(NewJob::new("middle", &1)).after(&first))
        .collect();
    let last = flow.add(NewJob::new("last", &1)).after_all(&middle);
    let (first, last) = (first.id(), last.id());
    world.client.submit(flow).await.unwrap();
    let (graph, calls) = asked(format!("/api/jobs/{first}/graph")).await;
    assert_eq!(graph["nodes"].as_array().unwrap().len(), 22);
    assert_eq!(graph["edges"].as_array().unwrap().len(), 40);
    let count = |what: &str| calls.iter().filter(|call| **call == what).count();
    // The search makes one call for the children of each job, and for each distance one call for
    // the jobs and one for their parents.
    assert_eq!(
        (count("children_of"), count("get"), count("parents_of")),
        (22, 3, 2)
    );
    // At the limit, no more children are read, but the links between the shown jobs are complete.
    let (graph, calls) = asked(format!("/api/jobs/{last}/graph?limit=21")).await;
    assert_eq!(graph["truncated"], true);
    assert_eq!(graph["edges"].as_array().unwrap().len(), 20);
    let count = |what: &str| calls.iter().filter(|call| **call == what).count();
    assert_eq!((count("children_of"), count("parents_of")), (1, 2));
    let (graph, calls) = asked(format!("/api/jobs/{first}/graph?limit=5")).await;
    assert_eq!(graph["edges"].as_array().unwrap().len(), 4);
    assert_eq!(calls, ["children_of", "get", "get", "parents_of"]);
}

#[tokio::test]
async fn a_parent_that_is_gone_is_shown_as_such() {
    let world = World::new();
    let parent = job_in(&world, JobState::Succeeded).await;
    let child = NewJob::new("k", &1).after(parent, Condition::Succeeded);
    let child = world.enqueue(child).await;
    world.client.delete(parent).await.unwrap();
    let graph = world.get(&format!("/api/jobs/{child}/graph")).await.ok();
    assert_eq!(graph["nodes"][1]["id"], parent.to_string());
    assert_eq!(graph["nodes"][1]["state"], Value::Null);
    assert_eq!(graph["edges"][0]["state"], "met");
}

#[tokio::test]
async fn text_of_jobs_comes_through_as_it_is() {
    let store: ratchet_core::SharedStore = Arc::new(MemoryStore::new());
    let world = World::over(Arc::clone(&store));
    let things = kit::populate(&world.client).await;
    let node = kit::node(&store);
    let running = tokio::spawn(async move { node.run().await });
    let dead = things.jobs[1];
    kit::until("the job has failed", || async {
        world.state(dead).await == JobState::Failed
    })
    .await;
    let job = world.get(&format!("/api/jobs/{dead}")).await.ok();
    assert_eq!(job["last_error"], "<script>alert('error')</script>");
    running.abort();
}
