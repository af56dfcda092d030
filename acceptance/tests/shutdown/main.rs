//! Tests that end a process by signals: `Node::run` drains at the first signal, and the second
//! signal ends the process at once.
#![cfg_attr(
    not(unix),
    allow(dead_code, reason = "the tests send signals, which only Unix has")
)]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod worker;

use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use libtest_mimic::{Arguments, Trial};
use ratchet::{Client, Job, JobId, JobRecord, JobState, NodeStatus, Ratchet};
use tokio::time::{sleep, timeout};

use crate::worker::{Endless, Order};

/// How long any step may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if let Some(order) = Order::of_environment() {
        return worker::run(&order);
    }
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    if cfg!(unix) {
        trials.push(Trial::test("deploys_cost_a_long_job_nothing", || {
            deploys_cost_a_long_job_nothing();
            Ok(())
        }));
        trials.push(Trial::test("a_second_signal_ends_the_process", || {
            a_second_signal_ends_the_process();
            Ok(())
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Checks that a job survives more deploys than the number of crashes that it may have. Each deploy
/// drops the body of the job.
#[tokio::main]
async fn deploys_cost_a_long_job_nothing() {
    let scene = Scene::new(Duration::ZERO).await;
    let job = scene.client.enqueue(Endless.into_job()).await.unwrap().id();
    for signal in ["-TERM", "-INT", "-TERM", "-TERM", "-TERM", "-TERM"] {
        let mut process = scene.start();
        scene.until(job, JobState::Running).await;
        send(signal, &process);
        assert_eq!(ended(&mut process).await.code(), Some(0));
        let job = scene.until(job, JobState::Pending).await;
        assert_eq!((job.crash_count, job.attempts), (0, 0));
    }
}

#[tokio::main]
async fn a_second_signal_ends_the_process() {
    let scene = Scene::new(Duration::from_secs(3_600)).await;
    let job = scene.client.enqueue(Endless.into_job()).await.unwrap().id();
    let mut process = scene.start();
    scene.until(job, JobState::Running).await;
    send("-INT", &process);
    let draining = async {
        let is_draining = |status| status == NodeStatus::Draining;
        while !scene
            .client
            .nodes()
            .await
            .unwrap()
            .iter()
            .any(|node| is_draining(node.status))
        {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, draining).await.unwrap();
    assert_eq!(
        process.try_wait().unwrap(),
        None,
        "expected the process to wait for the body"
    );
    send("-TERM", &process);
    assert_eq!(ended(&mut process).await.code(), Some(128 + 15));
}

/// A separate database, and a client of it.
struct Scene {
    _folder: tempfile::TempDir,
    order: Order,
    client: Client,
}

impl Scene {
    async fn new(drain_grace: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("jobs.db").display());
        let client = Ratchet::client(ratchet::connect(&url).await.unwrap());
        Self {
            _folder: folder,
            order: Order { url, drain_grace },
            client,
        }
    }

    /// Starts a process with a node.
    fn start(&self) -> Child {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.envs(self.order.to_environment()).spawn().unwrap()
    }

    async fn until(&self, id: JobId, state: JobState) -> JobRecord {
        let reached = async {
            loop {
                let job = self.client.job(id).await.unwrap().unwrap();
                if job.state == state {
                    return job;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap()
    }
}

fn send(signal: &str, process: &Child) {
    let mut kill = Command::new("kill");
    let sent = kill.args([signal, &process.id().to_string()]);
    assert!(
        sent.status().unwrap().success(),
        "could not send {signal} to the process"
    );
}

async fn ended(process: &mut Child) -> ExitStatus {
    let ends = async {
        loop {
            if let Some(status) = process.try_wait().unwrap() {
                return status;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, ends).await.unwrap()
}
