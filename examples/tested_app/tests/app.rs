//! Tests of the whole newsletter: jobs are stored, claimed, run and settled as in production.

use std::time::Duration;

use ratchet::sqlite::SqliteStore;
use ratchet::testing::{assert_enqueued, drain, memory_store, refute_enqueued, run_job};
use ratchet::{Job, JobState, NewJob};
use serde_json::json;
use tested_app_example::jobs::{Letter, Office, REMIND_AFTER, Remind, SignUp};
use tested_app_example::{DeadLetters, node};

fn sign_up(address: &str) -> NewJob {
    let address = address.to_owned();
    SignUp { address }.into_job()
}

#[tokio::test]
async fn who_does_not_confirm_is_reminded_after_three_days() {
    let (store, clock) = memory_store();
    let office = Office::default();
    let node = node(store, office.clone(), DeadLetters::default())
        .build()
        .unwrap();
    node.enqueue(sign_up("ada@example.org")).await.unwrap();
    node.enqueue(sign_up("bob@example.org")).await.unwrap();

    assert_eq!(drain(&node).await.unwrap().succeeded, 4);
    assert_enqueued!(node, Remind { .. }, count = 2);

    office
        .books()
        .confirmed
        .insert("bob@example.org".to_owned());
    clock.advance(REMIND_AFTER);
    let drained = drain(&node).await.unwrap();
    assert_eq!((drained.succeeded, drained.cancelled), (2, 1));
    assert_eq!(
        office.books().sent,
        [
            "welcome: ada@example.org",
            "welcome: bob@example.org",
            "please confirm: ada@example.org"
        ]
    );
    refute_enqueued!(node, Remind);
}

#[tokio::test]
async fn a_server_that_stays_busy_makes_a_dead_letter() {
    let (store, clock) = memory_store();
    let (office, dead_letters) = (Office::default(), DeadLetters::default());
    office.books().refusals = 3;
    let node = node(store, office.clone(), dead_letters.clone())
        .build()
        .unwrap();
    node.enqueue(sign_up("ada@example.org")).await.unwrap();
    let drained = drain(&node).queue("default").await.unwrap();
    assert_eq!(drained.succeeded, 1);
    let letter = assert_enqueued!(node, Letter { .. })[0].id;

    let hour = Duration::from_secs(3_600);
    let drained = drain(&node).through(&clock, hour).await.unwrap();
    assert_eq!((drained.retried, drained.failed), (2, 1));
    assert_eq!(dead_letters.count(), 1);

    // An operator repairs the server and requeues the letter.
    node.client().requeue(letter).await.unwrap();
    let ran = run_job(&node, letter).await.unwrap();
    assert_eq!(ran.job.state, JobState::Succeeded);
    assert_eq!(office.books().sent, ["welcome: ada@example.org"]);
}

#[tokio::test]
async fn letters_of_the_first_release_are_still_sent() {
    let (store, _clock) = memory_store();
    let office = Office::default();
    let node = node(store, office.clone(), DeadLetters::default())
        .build()
        .unwrap();
    let old = NewJob::new("send_mail", &json!({"to": "ada@example.org"}));
    let id = node.enqueue(old).await.unwrap().id();
    assert_enqueued!(node, Letter { subject, .. } if subject == "welcome");
    assert_eq!(
        run_job(&node, id).await.unwrap().job.state,
        JobState::Succeeded
    );
    assert_eq!(office.books().sent, ["welcome: ada@example.org"]);
}

#[tokio::test]
async fn it_works_on_the_database_of_production_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::builder(dir.path().join("jobs.db"));
    let store = std::sync::Arc::new(store.connect().await.unwrap());
    let office = Office::default();
    let node = node(store, office.clone(), DeadLetters::default())
        .build()
        .unwrap();
    let id = node.enqueue(sign_up("ada@example.org")).await.unwrap().id();
    assert_eq!(
        run_job(&node, id).await.unwrap().job.state,
        JobState::Succeeded
    );
    assert_eq!(drain(&node).await.unwrap().succeeded, 1);
    assert_enqueued!(node, Remind { address } if address.starts_with("ada"), delayed = true);
    assert_eq!(office.books().sent, ["welcome: ada@example.org"]);
}
