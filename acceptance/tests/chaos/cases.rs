//! The cases: the disturbances that the cluster must survive.

use std::env;
use std::process::Command;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::field::{Field, admin, take_connections, terminate};
use crate::judge::judge;
use crate::mongodb;
use crate::mysql;
use crate::sqlserver;
use crate::worker::Backend::{self, MongoDb, MySql, Postgres, SqlServer};
use crate::worker::{DEAD_AFTER, Order};

/// A kind of disturbance.
pub(crate) struct Case {
    pub(crate) backend: Backend,
    pub(crate) name: &'static str,
    /// A short name, used in the name of a schema.
    pub(crate) short: &'static str,
    /// Whether the case affects every client of the server.
    pub(crate) needs_server: bool,
    /// The number of connections in each worker's pool.
    pub(crate) connections: u32,
    disturbance: Disturbance,
}

#[derive(Clone, Copy)]
enum Disturbance {
    KillWorkers,
    TerminateConnections,
    StopServer,
    TakeConnections,
    KillOperations,
    KillSessions,
    StepDown,
    StepClock,
}

use Disturbance::{
    KillOperations, KillSessions, KillWorkers, StepClock, StepDown, StopServer, TakeConnections,
    TerminateConnections,
};

impl Case {
    /// Returns whether the case moves the clock of the database.
    pub(crate) const fn steps_clock(&self) -> bool {
        matches!(self.disturbance, StepClock)
    }

    /// Returns how long a node may be silent before it counts as dead. In cases where no node may
    /// count as dead, this is longer than a busy machine can delay the heartbeats of a living node.
    pub(crate) fn dead_after(&self) -> Duration {
        if self.steps_clock() {
            4 * DEAD_AFTER
        } else {
            DEAD_AFTER
        }
    }
}

const WORKERS: usize = 3;

/// Returns a case in which each worker's pool has ten connections.
const fn case(
    backend: Backend,
    name: &'static str,
    short: &'static str,
    disturbance: Disturbance,
) -> Case {
    Case {
        backend,
        name,
        short,
        needs_server: matches!(disturbance, TakeConnections | StopServer | StepDown),
        connections: 10,
        disturbance,
    }
}

pub(crate) const CASES: &[Case] = &[
    case(Postgres, "workers_are_killed", "kill", KillWorkers),
    Case {
        connections: 1,
        ..case(
            Postgres,
            "workers_with_a_pool_of_one_are_killed",
            "one",
            KillWorkers,
        )
    },
    case(
        Postgres,
        "connections_are_terminated_in_a_stream",
        "terminate",
        TerminateConnections,
    ),
    case(
        Postgres,
        "idle_connections_take_the_whole_server",
        "idle",
        TakeConnections,
    ),
    case(
        Postgres,
        "the_server_is_stopped_and_started",
        "stop",
        StopServer,
    ),
    case(Postgres, "the_databases_clock_steps", "clock", StepClock),
    case(MySql, "workers_are_killed", "kill", KillWorkers),
    case(
        MySql,
        "sessions_are_killed_in_a_stream",
        "sessions",
        KillSessions,
    ),
    case(
        MySql,
        "the_server_is_stopped_and_started",
        "stop",
        StopServer,
    ),
    case(MySql, "the_databases_clock_steps", "clock", StepClock),
    case(MongoDb, "workers_are_killed", "kill", KillWorkers),
    case(
        MongoDb,
        "operations_are_killed_in_a_stream",
        "operations",
        KillOperations,
    ),
    case(MongoDb, "the_primary_steps_down", "step", StepDown),
    case(
        MongoDb,
        "the_server_is_stopped_and_started",
        "stop",
        StopServer,
    ),
    case(MongoDb, "the_databases_clock_steps", "clock", StepClock),
    case(SqlServer, "workers_are_killed", "kill", KillWorkers),
    case(
        SqlServer,
        "sessions_are_killed_in_a_stream",
        "sessions",
        KillSessions,
    ),
    case(
        SqlServer,
        "the_server_is_stopped_and_started",
        "stop",
        StopServer,
    ),
    case(SqlServer, "the_databases_clock_steps", "clock", StepClock),
];

pub(crate) fn run(case: &Case, url: &str) {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // One round is enough for a case that steps the clock. More rounds would only take longer,
        // because after a step back the jobs that were enqueued before it become due late.
        let usual = if case.steps_clock() { 1 } else { 3 };
        let rounds = env::var("RATCHET_CHAOS_ROUNDS").map_or(usual, |text| text.parse().unwrap());
        let mut field = Field::new(url, case, WORKERS).await;
        println!("{}, {rounds} rounds", case.name);
        for _ in 0..rounds {
            match case.disturbance {
                KillWorkers => kill(&mut field).await,
                TerminateConnections => terminate_connections(&field).await,
                StopServer => stop_server(&mut field).await,
                TakeConnections => take(&field).await,
                KillOperations => mongodb::kill_operations(&field.order).await,
                KillSessions => kill_sessions(&field.order).await,
                StepDown => step_down(&field).await,
                StepClock => step_clock(&field).await,
            }
            field.check_workers();
        }
        let disturbed = now();
        let acknowledged = field.settle().await;
        println!(
            "    all jobs ended {:?} after the last disturbance",
            disturbed.elapsed()
        );
        judge(&field, &acknowledged).await;
        if case.steps_clock() {
            clock::check_no_node_was_buried(&field).await;
        }
        field.clear().await;
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time is only printed, to show how long the recovery took"
)]
fn now() -> Instant {
    Instant::now()
}

async fn kill(field: &mut Field) {
    sleep(Duration::from_millis(700)).await;
    field.kill_and_spawn();
}

/// Terminates a connection every 20 ms, and all of them at the end of the round.
async fn terminate_connections(field: &Field) {
    let mut admin = admin(&field.order.url).await;
    let mut terminated = 0;
    for limit in [Some(1); 40].into_iter().chain([None]) {
        terminated += terminate(&mut admin, &field.order.schema, limit).await;
        sleep(Duration::from_millis(20)).await;
    }
    println!("    {terminated} connections terminated");
    assert!(
        terminated > 0,
        "expected at least one connection to terminate"
    );
}

async fn kill_sessions(order: &Order) {
    match order.backend {
        MySql => mysql::kill_sessions(order).await,
        SqlServer => sqlserver::kill_sessions(order).await,
        Postgres | MongoDb => panic!("this backend has other cases"),
    }
}

/// Takes all available connections, up to 300. Then terminates the workers' connections, and takes
/// the connections that become free.
async fn take(field: &Field) {
    let mut admin = admin(&field.order.url).await;
    let (pool, mut taken) = take_connections(&field.order.url, 300).await;
    terminate(&mut admin, &field.order.schema, None).await;
    let (second_pool, more) = take_connections(&field.order.url, 300).await;
    taken.extend(more);
    println!("    {} idle connections held for 2 s", taken.len());
    sleep(Duration::from_secs(2)).await;
    drop(taken);
    pool.close().await;
    second_pool.close().await;
    sleep(Duration::from_millis(500)).await;
}

/// Stops the server without a checkpoint, as in a crash. It stays down for a second, or until
/// another server has taken over, and then recovers.
async fn stop_server(field: &mut Field) {
    sleep(Duration::from_millis(700)).await;
    let (port, others) = match field.order.backend {
        MongoDb => mongodb::primary(&field.order).await,
        Postgres | MySql | SqlServer => (String::new(), false),
    };
    shell("RATCHET_CHAOS_STOP", &port);
    let mut since = now();
    if others {
        field.first_enqueue().await;
        println!(
            "    the first enqueue succeeded {:?} after the primary was killed",
            since.elapsed()
        );
    }
    sleep(Duration::from_secs(1)).await;
    shell("RATCHET_CHAOS_START", &port);
    since = now();
    field.first_enqueue().await;
    println!(
        "    the first enqueue succeeded {:?} after the server was reachable again",
        since.elapsed()
    );
}

/// Makes the primary of a replica set step down. In a set of one node, that node is then elected
/// again.
async fn step_down(field: &Field) {
    sleep(Duration::from_millis(700)).await;
    mongodb::step_down(&field.order).await;
    let began = now();
    field.first_enqueue().await;
    println!(
        "    the first enqueue succeeded {:?} after the primary had stepped down",
        began.elapsed()
    );
}

/// Steps the clock forward by an hour, and then back by 20 s. Jobs thereby become due 20 s late,
/// and the case waits longer than that for jobs to end.
async fn step_clock(field: &Field) {
    for by_ms in [3_600_000, -20_000] {
        sleep(2 * DEAD_AFTER).await;
        clock::step(&field.order, by_ms).await;
    }
}

pub(crate) fn shell(variable: &str, port: &str) {
    let line = env::var(variable).unwrap();
    let status = Command::new("sh")
        .args(["-c", &line])
        .env("RATCHET_CHAOS_PORT", port)
        .current_dir("/")
        .status();
    assert!(status.unwrap().success(), "{variable}: {line}");
}
