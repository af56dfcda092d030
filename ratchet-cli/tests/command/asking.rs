//! Tests that actions on many jobs need a confirmation.

use std::time::Duration;

use crate::kit::WorkDir;

fn pending(dir: &WorkDir) -> usize {
    let jobs = dir.json(&["jobs", "list", "--state", "pending"]);
    jobs["jobs"].as_array().unwrap().len()
}

#[test]
fn without_a_terminal_and_a_yes_nothing_is_cancelled() {
    let dir = WorkDir::migrated();
    for _ in 0..3 {
        dir.enqueue(&["mail", "1", "--queue", "slow"]);
    }
    dir.enqueue(&["report", "1"]);
    let cancel = ["jobs", "cancel", "--queue", "slow"];
    dir.run(&cancel)
        .exits(5)
        .complains("cancel 3 jobs (mail 3)")
        .complains("--yes");
    // A `y` from a pipe does not confirm: the command asks only on a terminal.
    dir.run_with(&cancel, "y\n").exits(5);
    assert_eq!(pending(&dir), 4);

    let done = dir.json(&["jobs", "cancel", "--queue", "slow", "--yes"]);
    assert_eq!(
        (done["changed"].as_u64(), &done["complete"]),
        (Some(3), &true.into())
    );
    assert_eq!(pending(&dir), 1);
    // No matching job is left, so the command does not ask for confirmation.
    dir.run(&cancel).exits(0).says("0 changed");
}

#[test]
fn the_bound_is_kept() {
    let dir = WorkDir::migrated();
    for _ in 0..5 {
        dir.enqueue(&["mail", "1"]);
    }
    dir.run(&["jobs", "cancel", "--all", "--limit", "2"])
        .exits(5)
        .complains("cancel at most 2 of 5 jobs (mail 5)");
    dir.run(&["jobs", "cancel", "--all", "--limit", "2", "-y"])
        .exits(0)
        .says("2 changed");
    assert_eq!(pending(&dir), 3);
}

#[test]
fn dead_letters_are_requeued_by_filter() {
    let dir = WorkDir::migrated();
    let ids: Vec<String> = (0..3)
        .map(|n| dir.enqueue(&["mail", &n.to_string()]))
        .collect();
    kill(&dir);
    let dead = dir.json(&["jobs", "list", "--state", "failed"]);
    assert_eq!(dead["jobs"].as_array().unwrap().len(), 3);
    dir.run(&["jobs", "retry", &ids[0]]).exits(0).says("became");
    dir.run(&["jobs", "requeue", "--kind", "mail"])
        .exits(5)
        .complains("requeue 2 jobs");
    dir.run(&["jobs", "requeue", "--kind", "mail", "--yes"])
        .exits(0)
        .says("2 changed");
    assert_eq!(pending(&dir), 3);
    // Only dead letters can be requeued.
    dir.run(&["jobs", "requeue", "--state", "pending", "--yes"])
        .exits(4);
}

#[test]
fn ended_jobs_of_an_age_are_purged() {
    let dir = WorkDir::migrated();
    for n in 0..3 {
        dir.enqueue(&["mail", &n.to_string()]);
    }
    kill(&dir);
    dir.enqueue(&["mail", "4"]);
    dir.run(&["jobs", "purge", "--older-than", "1h"])
        .exits(0)
        .says("0 deleted");
    std::thread::sleep(Duration::from_millis(5));
    let purge = ["jobs", "purge", "--older-than", "1ms"];
    dir.run(&purge).exits(5).complains("delete 3 jobs (mail 3)");
    let purged = dir.json(&[&purge[..], &["--limit", "2", "--yes"]].concat());
    assert_eq!(purged["deleted"]["failed"], 2);
    assert_eq!(purged["complete"], false);
    let purged = dir.json(&[&purge[..], &["--state", "failed", "--yes"]].concat());
    assert_eq!(
        (&purged["deleted"]["failed"], &purged["complete"]),
        (&1.into(), &true.into())
    );
    assert_eq!(pending(&dir), 1);
    dir.run(&["jobs", "purge", "--older-than", "1s", "--state", "running"])
        .exits(2);
}

/// Turns all pending jobs into dead letters.
pub(crate) fn kill(dir: &WorkDir) {
    use ratchet::store_api::model::ClaimRequest;
    use ratchet::{Outcome, Settlement};

    dir.with_client(|client| async move {
        let store = client.store();
        let request = ClaimRequest::new(ratchet::NodeId::new(), 100);
        let claimed = store.jobs().claim_next_batch(&request).await.unwrap();
        let failed = |job: &ratchet::store_api::model::ClaimedJob| {
            let error = "no route\nto \u{1b}[31mhost".to_owned();
            Settlement::new(job.claim.token, Outcome::Failed { error })
        };
        let settlements: Vec<Settlement> = claimed.iter().map(failed).collect();
        store.jobs().settle(&settlements).await.unwrap();
    });
}
