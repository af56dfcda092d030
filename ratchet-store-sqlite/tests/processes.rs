//! Several processes on one file, and processes that are killed. The test program starts itself
//! again as the other processes, each with a role.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use ratchet_core::model::{ClaimRequest, Detail, Outcome, ReclaimRequest, Settlement};
use ratchet_core::store::{Checked, JobStore, NodeStore};
use ratchet_core::{JobId, NewJob, NodeId};
use ratchet_store_sqlite::SqliteStore;

const ROLE: &str = "RATCHET_TEST_ROLE";
const FILE: &str = "RATCHET_TEST_FILE";

fn main() -> ExitCode {
    if let (Ok(role), Ok(file)) = (std::env::var(ROLE), std::env::var(FILE)) {
        block_on(play(&role, Path::new(&file)));
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("processes_share_the_jobs", processes_share_the_jobs),
        Trial::test(
            "what_was_answered_survives_a_kill",
            what_was_answered_survives_a_kill,
        ),
        Trial::test(
            "claims_of_a_killed_process_go_back",
            claims_of_a_killed_process_go_back,
        ),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

async fn open(file: &Path) -> Checked<SqliteStore> {
    SqliteStore::builder(file).connect().await.unwrap()
}

/// Runs a child process in this role.
async fn play(role: &str, file: &Path) {
    let store = open(file).await;
    match role {
        // Runs jobs until there are none, then prints how many it ran.
        "worker" => {
            let request = ClaimRequest::new(NodeId::new(), 20);
            let mut done = 0;
            loop {
                let claimed = store.claim_next_batch(&request).await.unwrap();
                if claimed.is_empty() {
                    break;
                }
                done += claimed.len();
                let ends: Vec<Settlement> = claimed
                    .iter()
                    .map(|job| {
                        let result = None;
                        Settlement::new(job.claim.token, Outcome::Succeeded { result })
                    })
                    .collect();
                store.settle(&ends).await.unwrap();
            }
            tell(done);
        }
        // Enqueues forever, and prints each id once its call has returned.
        "producer" => loop {
            let jobs = [NewJob::new("kind", &1), NewJob::new("kind", &2)];
            for enqueued in store.enqueue(&jobs).await.unwrap() {
                tell(enqueued.id());
            }
        },
        // Claims forever, and prints each claimed id.
        "hoarder" => {
            let request = ClaimRequest::new(NodeId::new(), 3);
            loop {
                for job in store.claim_next_batch(&request).await.unwrap() {
                    tell(job.claim.token.job);
                }
            }
        }
        other => panic!("unknown role {other}"),
    }
}

fn tell(line: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

fn start(role: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .env(ROLE, role)
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the ids that a child prints. Kills the child once it has printed `enough` of them.
fn ids_until_killed(mut child: Child, enough: usize) -> Vec<JobId> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ids = Vec::new();
    while ids.len() < enough {
        ids.push(lines.next().unwrap().unwrap().parse().unwrap());
    }
    // SIGKILL: no code of the process runs after it.
    child.kill().unwrap();
    child.wait().unwrap();
    // The lines that the child printed before it was killed count too, except for an incomplete
    // one.
    let told_before = lines.map_while(Result::ok);
    ids.extend(told_before.filter_map(|id| id.parse::<JobId>().ok()));
    ids
}

fn processes_share_the_jobs() -> Result<(), Failed> {
    const JOBS: usize = 3_000;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("jobs.db");
    let jobs: Vec<NewJob> = (0..JOBS).map(|_| NewJob::new("kind", &1)).collect();
    let store = block_on(open(&file));
    block_on(store.enqueue(&jobs))?;
    let workers: Vec<Child> = (0..3).map(|_| start("worker", &file)).collect();
    let mut done = 0;
    for worker in workers {
        let output = worker.wait_with_output()?;
        assert!(output.status.success());
        done += String::from_utf8(output.stdout)?.trim().parse::<usize>()?;
    }
    assert_eq!(done, JOBS);
    for job in &jobs {
        assert_eq!(block_on(store.history(job.id()))?.len(), 1);
    }
    Ok(())
}

fn what_was_answered_survives_a_kill() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("jobs.db");
    for _ in 0..5 {
        let ids = ids_until_killed(start("producer", &file), 100);
        let store = block_on(open(&file));
        let stored = block_on(store.get(&ids, Detail::Whole))?;
        assert!(stored.iter().all(Option::is_some));
    }
    // The two jobs of a call are both stored, or neither.
    let database = rusqlite::Connection::open(&file)?;
    let (jobs, data): (i64, i64) = database.query_row(
        "SELECT (SELECT count(*) FROM ratchet_jobs), (SELECT count(*) FROM ratchet_job_data)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    assert_eq!((jobs % 2, data), (0, jobs));
    Ok(())
}

fn claims_of_a_killed_process_go_back() -> Result<(), Failed> {
    const JOBS: usize = 300;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("jobs.db");
    let store = block_on(open(&file));
    let jobs: Vec<NewJob> = (0..JOBS).map(|_| NewJob::new("kind", &1)).collect();
    block_on(store.enqueue(&jobs))?;
    let hoarded = ids_until_killed(start("hoarder", &file), 30);
    let unique: HashSet<JobId> = hoarded.iter().copied().collect();
    assert_eq!(unique.len(), hoarded.len());
    // The hoarder sends no heartbeats, so its node is unknown. Claims of an unknown node count as
    // lost once they are older than `dead_after`.
    let request = ReclaimRequest::new().dead_after(std::time::Duration::from_millis(1));
    std::thread::sleep(std::time::Duration::from_millis(20));
    let reclaimed = block_on(store.reclaim(&request.limit(JOBS)))?;
    assert!(reclaimed.len() >= hoarded.len());
    let again = block_on(store.claim_next_batch(&ClaimRequest::new(NodeId::new(), JOBS)))?;
    assert_eq!(again.len(), JOBS);
    block_on(store.database_time())?;
    Ok(())
}
