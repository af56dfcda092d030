//! Actions on one job: which states allow them, and concurrent actions.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use ratchet_core::{JobId, JobState, MemoryStore, NewJob, SharedStore};
use ratchet_http::view::JobAction;
use ratchet_store_sqlite::SqliteStore;
use serde_json::json;

use crate::kit::{World, job_in};

#[tokio::test]
async fn every_action_in_every_state_does_what_is_offered_or_conflicts() {
    for state in JobState::ALL {
        for action in JobAction::ALL {
            let world = World::new();
            let id = job_in(&world, state).await;
            let job = world.get(&format!("/api/jobs/{id}")).await.ok();
            let word = json!(action.as_str());
            let is_offered = job["actions"].as_array().unwrap().contains(&word);
            let uri = format!("/api/jobs/{id}/{}", action.as_str());
            let answer = world.post(&uri).await;
            if !is_offered {
                let problem = answer.refused(409, "conflict");
                assert_eq!(problem["state"], state.to_string(), "{action:?} {state}");
                assert_eq!(world.state(id).await, state);
                continue;
            }
            let acted = answer.ok();
            let expected = match (action, state) {
                (JobAction::Cancel, JobState::Running) => json!({"outcome": "cancel_requested"}),
                (JobAction::Delete, _) => json!({"outcome": "deleted"}),
                (JobAction::Cancel, _) => json!({"outcome": "became", "state": "cancelled"}),
                (JobAction::Pause, _) => json!({"outcome": "became", "state": "paused"}),
                (JobAction::Retry | JobAction::Resume, _) => {
                    json!({"outcome": "became", "state": "pending"})
                }
            };
            assert_eq!(acted, expected, "{action:?} {state}");
        }
    }
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let world = World::new();
    for action in JobAction::ALL {
        let uri = format!("/api/jobs/{}/{}", JobId::new(), action.as_str());
        world.post(&uri).await.refused(404, "not_found");
        let uri = format!("/api/jobs/x/{}", action.as_str());
        world.post(&uri).await.invalid("id");
    }
    let uri = format!("/api/jobs/{}/explode", JobId::new());
    world.post(&uri).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_dead_letter_whose_key_is_taken_conflicts_and_names_the_holder() {
    let world = World::new();
    let dead = world.enqueue(NewJob::new("k", &1).unique_key("u")).await;
    let jobs = world.client.store().jobs();
    let claim = ratchet_core::model::ClaimRequest::new(ratchet_core::NodeId::new(), 1);
    let token = jobs.claim_next_batch(&claim).await.unwrap()[0].claim.token;
    let failed = ratchet_core::model::Outcome::Failed {
        error: "no".to_owned(),
    };
    let settlement = ratchet_core::model::Settlement::new(token, failed);
    jobs.settle(&[settlement]).await.unwrap();
    let holder = world.enqueue(NewJob::new("k", &2).unique_key("u")).await;
    let problem = world.post(&format!("/api/jobs/{dead}/retry")).await;
    let problem = problem.refused(409, "conflict");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains(&holder.to_string())
    );
}

/// Sends these actions on one job concurrently, and counts how often each response was returned.
async fn at_once(world: &World, id: JobId, words: &[&str]) -> BTreeMap<String, usize> {
    let sent = words.iter().map(|word| {
        let (world, uri) = (world.clone(), format!("/api/jobs/{id}/{word}"));
        tokio::spawn(async move { world.post(&uri).await })
    });
    let mut counts = BTreeMap::new();
    for (word, answer) in words.iter().zip(join_all(sent).await) {
        let answer = answer.unwrap();
        let status = answer.status.as_u16();
        assert!(matches!(status, 200 | 404 | 409), "{word}: {answer:?}");
        let outcome = answer.json["outcome"].as_str().unwrap_or("none");
        *counts
            .entry(format!("{word} {status} {outcome}"))
            .or_default() += 1;
    }
    counts
}

fn of(counts: &BTreeMap<String, usize>, key: &str) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

async fn concurrent_actions(store: SharedStore) {
    let world = World::over(store);
    let many = |word: &'static str| vec![word; 24];
    for _ in 0..4 {
        let waiting = world.enqueue(NewJob::new("other", &1).delay(HOUR)).await;
        let counts = at_once(&world, waiting, &many("cancel")).await;
        assert_eq!(of(&counts, "cancel 200 became"), 1, "{counts:?}");
        assert_eq!(of(&counts, "cancel 409 none"), 23, "{counts:?}");
        // A cancelled job can be deleted once.
        let counts = at_once(&world, waiting, &many("delete")).await;
        assert_eq!(of(&counts, "delete 200 deleted"), 1, "{counts:?}");
        assert_eq!(of(&counts, "delete 404 none"), 23, "{counts:?}");

        let job = world.enqueue(NewJob::new("other", &1).delay(HOUR)).await;
        let mixed: Vec<&str> = ["pause", "resume", "cancel", "delete"].repeat(8);
        let counts = at_once(&world, job, &mixed).await;
        // Successful pauses and resumes alternate until one request cancels the job.
        let (paused, resumed) = (
            of(&counts, "pause 200 became"),
            of(&counts, "resume 200 became"),
        );
        assert!(paused == resumed || paused == resumed + 1, "{counts:?}");
        assert_eq!(of(&counts, "cancel 200 became"), 1, "{counts:?}");
        let deleted = of(&counts, "delete 200 deleted");
        let left = world.client.job(job).await.unwrap();
        match left {
            None => assert_eq!(deleted, 1, "{counts:?}"),
            Some(job) => {
                assert_eq!((deleted, job.state), (0, JobState::Cancelled), "{counts:?}");
                world.client.delete(job.id).await.unwrap();
            }
        }

        let dead = job_in(&world, JobState::Failed).await;
        let mixed: Vec<&str> = ["retry", "delete"].repeat(12);
        let counts = at_once(&world, dead, &mixed).await;
        let (retried, deleted) = (
            of(&counts, "retry 200 became"),
            of(&counts, "delete 200 deleted"),
        );
        // One of the two actions takes effect first, and the other one then no longer applies.
        assert_eq!(retried + deleted, 1, "{counts:?}");
        assert_eq!(
            world.client.job(dead).await.unwrap().is_some(),
            retried == 1
        );
        if retried == 1 {
            world.client.cancel(dead).await.unwrap();
            world.client.delete(dead).await.unwrap();
        }
    }
    assert_eq!(world.count().await, 0);
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_actions_at_once_one_wins_and_the_others_see_what_it_did() {
    concurrent_actions(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_actions_at_once_one_wins_on_sqlite_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::builder(dir.path().join("jobs.db"))
        .connect()
        .await;
    concurrent_actions(Arc::new(store.unwrap())).await;
}
