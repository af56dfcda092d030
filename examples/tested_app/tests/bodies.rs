//! Tests of the bodies alone, without a store or an engine.

use ratchet::testing::{TestContext, assert_enqueued, perform, refute_enqueued};
use ratchet::{Job, Verdict};
use tested_app_example::jobs::{Letter, Office, REMIND_AFTER, Remind, SignUp};

fn ada() -> String {
    "ada@example.org".to_owned()
}

#[tokio::test]
async fn a_letter_is_sent_once_the_server_takes_it() {
    let office = Office::default();
    office.books().refusals = 1;
    let letter = || Letter {
        address: ada(),
        subject: "welcome".to_owned(),
    };
    let refused = perform(letter()).state(office.clone()).await.unwrap_err();
    assert_eq!(refused.verdict(), Verdict::Retry);
    let sent = perform(letter()).state(office.clone()).attempt(2).await;
    assert_eq!(sent.unwrap(), "welcome: ada@example.org");
    assert_eq!(office.books().sent.len(), 1);
}

#[tokio::test]
async fn who_signs_up_gets_a_letter_and_later_a_reminder() {
    let test = TestContext::of::<SignUp>();
    SignUp { address: ada() }.run(test.context()).await.unwrap();
    assert_enqueued!(test, Letter { subject, .. } if subject == "welcome", queue = "post");
    let reminders = assert_enqueued!(test, Remind { .. }, delayed = true, count = 1);
    let waits = reminders[0].run_at - reminders[0].created_at;
    assert_eq!(waits.to_std().unwrap(), REMIND_AFTER);
    assert_eq!(test.progress().unwrap().percent, 50);

    // Running the body twice has the same effect as running it once.
    SignUp { address: ada() }.run(test.context()).await.unwrap();
    assert_enqueued!(test, Letter { .. }, count = 1);
}

#[tokio::test]
async fn what_is_no_address_is_not_tried_again() {
    let test = TestContext::of::<SignUp>();
    let address = "ada".to_owned();
    let error = SignUp { address }.run(test.context()).await.unwrap_err();
    assert_eq!(error.verdict(), Verdict::Discard);
    refute_enqueued!(test, Letter);
}
