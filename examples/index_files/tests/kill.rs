//! Real processes on one database file: killed with SIGKILL repeatedly, and many at once.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use ratchet::{AttemptOutcome, Client, JobFilter, JobState, PageRequest, Ratchet};
use tempfile::TempDir;

const FILES: usize = 3_000;

/// A folder of files, with a path for the database.
struct Input {
    folder: TempDir,
}

impl Input {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("files");
        std::fs::create_dir(&files).unwrap();
        for number in 0..FILES {
            std::fs::write(files.join(format!("{number}.txt")), "line\n".repeat(number)).unwrap();
        }
        Self { folder }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("index.db")
    }

    fn spawn(&self) -> Child {
        Command::new(env!("CARGO_BIN_EXE_index-files-example"))
            .arg(self.folder.path().join("files"))
            .arg("--db")
            .arg(self.database())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    async fn client(&self) -> Client {
        let url = format!("sqlite://{}", self.database().display());
        Ratchet::client(ratchet::connect(&url).await.unwrap())
    }

    /// Waits until a body runs.
    async fn until_one_runs(&self) {
        let client = self.client().await;
        let running = JobFilter::all().state(JobState::Running);
        let page = PageRequest::first(1);
        while client.list(&running, &page).await.unwrap().jobs.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Checks that every file has exactly one recorded result, and the right one. Returns how many
    /// claims were lost.
    async fn check(&self) -> usize {
        let client = self.client().await;
        let (mut lines, mut lost) = (BTreeMap::<u64, usize>::new(), 0);
        let page = PageRequest::first(10_000);
        for job in client.list(&JobFilter::all(), &page).await.unwrap().jobs {
            assert_eq!(job.state, JobState::Succeeded, "{job:?}");
            let result: serde_json::Value = job.result.as_ref().unwrap().decode().unwrap();
            *lines.entry(result["lines"].as_u64().unwrap()).or_default() += 1;
            lost += check_history(&client, job.id).await;
        }
        let expected: BTreeMap<u64, usize> = (0..FILES as u64).map(|lines| (lines, 1)).collect();
        assert_eq!(lines, expected);
        lost
    }
}

/// Checks that the job was recorded once, after any lost claims. Returns how many claims were lost.
async fn check_history(client: &Client, job: ratchet::JobId) -> usize {
    let history = client.history(job).await.unwrap();
    let (last, earlier) = history.split_last().unwrap();
    assert_eq!(last.outcome, AttemptOutcome::Succeeded);
    let all_lost = earlier
        .iter()
        .all(|attempt| attempt.outcome == AttemptOutcome::Lost);
    assert!(all_lost, "{history:?}");
    earlier.len()
}

fn success(ended: std::io::Result<ExitStatus>) {
    assert!(ended.unwrap().success());
}

#[tokio::test]
async fn an_index_that_is_killed_again_and_again_is_completed_by_the_next_run() {
    let input = Input::new();
    let mut child = input.spawn();
    input.until_one_runs().await;
    child.kill().unwrap();
    child.wait().unwrap();
    // The delays grow, so that the kills hit the enqueueing, the running and the recovery.
    for millis in [20, 60, 100, 150, 200, 300, 450] {
        let mut child = input.spawn();
        sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    success(input.spawn().wait());
    assert!(
        input.check().await > 0,
        "expected at least one kill to end a process that runs a job"
    );
}

#[tokio::test]
async fn several_processes_share_one_file_and_each_job_runs_once() {
    let input = Input::new();
    let children: Vec<Child> = (0..4).map(|_| input.spawn()).collect();
    for mut child in children {
        success(child.wait());
    }
    input.check().await;
}
