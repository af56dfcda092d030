//! Tests of behaviour that the conformance suite does not require.

use std::process::Command;
use std::sync::Arc;

use custom_store_example::open;
use ratchet::{NewJob, Ratchet, StoreErrorKind};

#[tokio::test]
async fn a_job_is_in_the_file_when_the_store_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.redb");
    let store = open(&file).await.unwrap();
    let refused = open(&file).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Unavailable);
    let client = Ratchet::client(Arc::new(store));
    let id = client.enqueue(NewJob::new("mail", &1)).await.unwrap().id();
    drop(client);
    let client = Ratchet::client(Arc::new(open(&file).await.unwrap()));
    assert!(client.job(id).await.unwrap().is_some());
}

#[test]
fn the_command_works_on_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("redb:{}", folder.path().join("jobs.redb").display());
    let run = |arguments: &[&str]| {
        let command = Command::new(env!("CARGO_BIN_EXE_custom-store-example"))
            .args(arguments)
            .env("RATCHET_STORE__URL", &url)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&command.stderr);
        assert!(command.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(command.stdout).unwrap()
    };
    run(&["enqueue", "mail", "1"]);
    let listed = run(&["jobs", "list"]);
    assert!(listed.contains("mail"), "{listed}");
    assert!(run(&["status"]).contains("redb"));
}

#[test]
fn the_guide_shows_the_fixture() {
    let guide = include_str!("../../../docs/guide/writing-a-store.md");
    let fixture = include_str!("conformance.rs");
    assert!(
        guide.contains(fixture),
        "copy tests/conformance.rs to the guide"
    );
}
