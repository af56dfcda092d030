//! Actions on many jobs with one request.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet_core::memory::Fault;
use ratchet_core::{JobId, JobState, MemoryStore, NewJob};
use ratchet_http::{Access, Action, Limits};
use serde_json::{Value, json};

use crate::kit::{self, Allow, World, job_in};

async fn jobs(world: &World, count: u64) -> Vec<JobId> {
    let jobs: Vec<NewJob> = (0..count).map(|n| NewJob::new("k", &n).tag("t")).collect();
    world.client.enqueue_all(&jobs).await.unwrap();
    jobs.iter().map(NewJob::id).collect()
}

async fn bulk(world: &World, body: Value) -> Value {
    world.post_json("/api/jobs/bulk", &body).await.ok()
}

#[tokio::test]
async fn what_matches_is_acted_on_and_counted() {
    let world = World::new();
    jobs(&world, 5).await;
    let other = world.enqueue(NewJob::new("k", &1)).await;
    let done = bulk(&world, json!({"action": "pause", "filter": {"tag": "t"}})).await;
    assert_eq!(
        done,
        json!({
            "changed": 5, "cancel_requested": 0, "key_taken": 0, "refused": 0,
            "complete": true, "next": null,
        })
    );
    assert_eq!(world.state(other).await, JobState::Pending);
    let states = json!({"action": "cancel", "filter": {"states": ["paused", "failed"]}});
    assert_eq!(bulk(&world, states).await["changed"], 5);
    let all = json!({"action": "cancel", "all": true});
    assert_eq!(bulk(&world, all).await["changed"], 1);
}

#[tokio::test]
async fn a_filter_that_matches_everything_must_be_meant() {
    let world = World::new();
    let all = jobs(&world, 3).await;
    for body in [
        json!({"action": "cancel"}),
        json!({"action": "cancel", "filter": {}}),
        json!({"action": "cancel", "filter": {"states": []}, "all": false}),
    ] {
        world
            .post_json("/api/jobs/bulk", &body)
            .await
            .invalid("filter");
    }
    for id in all {
        assert_eq!(world.state(id).await, JobState::Pending);
    }
}

#[tokio::test]
async fn the_limit_holds_and_the_answer_says_where_to_go_on() {
    let world = World::new();
    jobs(&world, 7).await;
    let mut body = json!({"action": "cancel", "filter": {"tag": "t"}, "limit": 3});
    let mut changed = Vec::new();
    loop {
        let done = bulk(&world, body.clone()).await;
        changed.push(done["changed"].as_u64().unwrap());
        if done["complete"] == true {
            break;
        }
        body["after"] = done["next"].clone();
    }
    assert_eq!(changed, [3, 3, 1]);
}

#[tokio::test]
async fn going_on_passes_over_those_that_still_match() {
    let world = World::new();
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(job_in(&world, JobState::Running).await.to_string());
    }
    let mut body = json!({"action": "cancel", "all": true, "limit": 1});
    for id in &held {
        let done = bulk(&world, body.clone()).await;
        assert_eq!(done["cancel_requested"], 1);
        assert_eq!(done["next"], json!(id));
        body["after"] = done["next"].clone();
    }
    assert_eq!(bulk(&world, body).await["complete"], true);
}

#[tokio::test]
async fn named_jobs_are_answered_each() {
    let world = World::new();
    let dead = job_in(&world, JobState::Failed).await;
    let running = job_in(&world, JobState::Running).await;
    let ids = [dead, running, JobId::new()].map(|id| id.to_string());
    let done = bulk(&world, json!({"action": "delete", "ids": ids})).await;
    assert_eq!((&done["changed"], &done["refused"]), (&json!(1), &json!(2)));
    let done = bulk(&world, json!({"action": "cancel", "ids": ids})).await;
    assert_eq!(done["cancel_requested"], 1);
    assert_eq!(done["complete"], true);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name() {
    let world = World::new();
    let all = json!({"action": "cancel", "all": true});
    for (field, value, named) in [
        ("action", json!("explode"), "action"),
        ("action", json!(null), "action"),
        ("limit", json!(0), "limit"),
        ("limit", json!(1_000_001), "limit"),
        ("limit", json!(-1), "limit"),
        ("limit", json!(1e300), "limit"),
        ("after", json!("x"), "after"),
        ("ids", json!([]), "all"),
        ("filter", json!({"states": ["dead"]}), "filter.states[0]"),
        ("filter", json!({"queue": " "}), "filter.queue"),
        ("filter", json!({"nonsense": 1}), "filter.nonsense"),
        ("filter", json!([]), "filter"),
    ] {
        let mut body = all.clone();
        body[field] = value;
        let answer = world.post_json("/api/jobs/bulk", &body).await;
        let problem = answer.refused(422, "invalid");
        assert_eq!(problem["field"], named, "{problem}");
    }
    let many = vec![JobId::new().to_string(); 201];
    let body = json!({"action": "cancel", "ids": many});
    world
        .post_json("/api/jobs/bulk", &body)
        .await
        .invalid("ids");
}

/// The first pass takes longer than the time limit of a request, so the request ends after this
/// pass.
#[tokio::test(start_paused = true)]
async fn a_request_ends_when_its_time_is_over_and_says_so() {
    let store = MemoryStore::new().with_faults(|operation| match operation {
        "act" => Fault::DelayedAnswer(Duration::from_secs(6)),
        _ => Fault::None,
    });
    let world = World::over(Arc::new(store));
    jobs(&world, 1_200).await;
    let body = json!({"action": "cancel", "all": true});
    let done = bulk(&world, body.clone()).await;
    assert_eq!(
        (&done["changed"], &done["complete"]),
        (&json!(500), &json!(false))
    );
    assert!(done["next"].is_string());
    assert_eq!(bulk(&world, body).await["changed"], 500);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_before_the_store_failed_is_told() {
    let calls = AtomicUsize::new(0);
    let store = MemoryStore::new().with_faults(move |operation| match operation {
        "act" if calls.fetch_add(1, Ordering::SeqCst) == 1 => Fault::ErrorBeforeCommit,
        _ => Fault::None,
    });
    let world = World::over(Arc::new(store));
    jobs(&world, 600).await;
    let body = json!({"action": "cancel", "all": true});
    let problem = world.post_json("/api/jobs/bulk", &body).await;
    let problem = problem.refused(503, "unavailable");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("applied to 500 jobs"), "{detail}");
    assert_eq!(bulk(&world, body).await["changed"], 100);
}

#[tokio::test]
async fn the_authorizer_is_asked_for_the_action_too() {
    static ASKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let no_deletes = |access| {
        ASKED.lock().unwrap().insert(format!("{access:?}"));
        access != Access::Write(Action::DeleteJob)
    };
    let world = World::built(Arc::new(MemoryStore::new()), move |builder| {
        builder.authorize(Allow(no_deletes))
    });
    let ended = job_in(&world, JobState::Cancelled).await;
    let body = json!({"action": "delete", "all": true});
    let refused = world.post_json("/api/jobs/bulk", &body).await;
    refused.refused(403, "denied");
    assert_eq!(world.state(ended).await, JobState::Cancelled);
    let body = json!({"action": "cancel", "all": true});
    world.post_json("/api/jobs/bulk", &body).await.ok();
    let asked = ASKED.lock().unwrap();
    for access in ["Write(BulkJobs)", "Write(DeleteJob)", "Write(CancelJob)"] {
        assert!(asked.contains(access), "{asked:?}");
    }
}

#[tokio::test]
async fn a_batch_is_cancelled_within_the_time_of_a_request() {
    let world = World::built(Arc::new(MemoryStore::new()), |builder| {
        kit::open(builder).limits(Limits::default().writes_per_second(1_000))
    });
    let batch = world.client.create_batch().await.unwrap();
    let children: Vec<NewJob> = (0..3)
        .map(|n| NewJob::new("k", &n).in_batch(batch))
        .collect();
    world.client.enqueue_all(&children).await.unwrap();
    let other = world.enqueue(NewJob::new("k", &1)).await;
    let uri = format!("/api/batches/{batch}/cancel");
    let done = world.post(&uri).await.ok();
    assert_eq!(
        (&done["changed"], &done["complete"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(world.state(other).await, JobState::Pending);
    let batch = world.get(&format!("/api/batches/{batch}")).await.ok();
    assert_eq!(
        (&batch["closed"], &batch["percent"]),
        (&json!(true), &json!(100))
    );
    assert_eq!(world.post(&uri).await.ok()["changed"], 0);
}
