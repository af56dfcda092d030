//! Faults of the database itself: failover, restore, lost connections. The worker processes
//! survive.
//!
//! Each round has its own schema, four workers, and producers of plain jobs, jobs in lanes and jobs
//! with permits. Two producers use Ratchet's connections, and one uses the application's own pool.
//! The producers continue after the fault. Every job in the database must end within a minute of
//! the fault.
//!
//! | figure | meaning |
//! |---|---|
//! | calls refused | failed enqueue calls; with silent connections, one per producer is allowed |
//! | left behind | jobs that the old server acknowledged and the new server lacks at promotion; if the topology promises every acknowledged job, they count as lost |
//! | lost | jobs that were on the new server at promotion, or were acknowledged afterwards, and are missing in the end |
//! | stale ends | ends of bodies that were applied to a claim under which the body did not run |
//! | double ends | jobs that ended twice on the new server |
//! | stuck | jobs in the database that have not ended a minute after the fault |
//! | crash counts | the sum over all jobs; must be 0, since no worker dies |
//! | wrong kinds | jobs stored under the route of another kind or queue, or run as another kind |
//! | without a route | jobs whose route does not exist |
//! | equal terms | fences of a lock that were granted more than once |

mod duty;
mod endpoint;
mod mysql;
mod pair;
mod postgres;
mod read;
mod scene;
mod server;
mod set;
mod verdict;

use std::env;
use std::time::Duration;

use libtest_mimic::{Completion, Failed, Trial};
use ratchet::NodeBuilder;
use ratchet::store_api::time;
use tokio::runtime::Builder;
use tokio::time::sleep;

use self::duty::As;
use self::mysql::Mysql;
use self::pair::Pair;
use self::postgres::Postgres;
use self::scene::{ENDPOINTS, Event, Scene};
use self::server::Server;
use self::verdict::{Figures, Stored};
use crate::worker::Backend;

/// How long the producers continue after a fault: at least `AFTER`, and at most `AT_MOST`
/// milliseconds. In between, they stop as soon as everything runs again.
const AFTER: Duration = Duration::from_secs(10);
const AT_MOST: i64 = 45_000;
/// The deadline of every job after a fault, in milliseconds.
const BOUND: i64 = 60_000;

#[derive(Clone, Copy)]
enum Fault {
    Postgres(pair::Fault),
    Mysql(pair::Fault),
    /// The member of a Galera cluster that all clients use is killed.
    Galera,
    Set(set::Fault),
}

const PAIRS: &[(&str, pair::Fault)] = &[
    (
        "a_synchronous_standby_is_promoted",
        pair::Fault::Promotion(Duration::ZERO),
    ),
    (
        "a_standby_200_ms_behind_is_promoted",
        pair::Fault::Promotion(Duration::from_millis(200)),
    ),
    (
        "a_standby_15_s_behind_is_promoted",
        pair::Fault::Promotion(Duration::from_secs(15)),
    ),
    (
        "a_copy_of_25_s_ago_is_restored",
        pair::Fault::Restore(Duration::from_secs(25)),
    ),
    ("an_endpoint_is_stale", pair::Fault::StaleEndpoint),
    ("connections_die_silently", pair::Fault::Silence),
];

const SETS: &[(&str, set::Fault)] = &[
    ("the_primary_steps_down", set::Fault::StepDown),
    ("the_primary_is_killed", set::Fault::Kill),
    ("the_primary_is_stopped", set::Fault::Stop),
    ("replication_stalls", set::Fault::Stall),
];

pub(crate) fn trials() -> Vec<Trial> {
    let pairs = PAIRS.iter().flat_map(|(name, fault)| {
        [
            trial(name, Fault::Postgres(*fault)),
            trial(name, Fault::Mysql(*fault)),
        ]
    });
    let sets = SETS
        .iter()
        .map(|(name, fault)| trial(name, Fault::Set(*fault)));
    pairs
        .chain([trial("the_writing_member_is_killed", Fault::Galera)])
        .chain(sets)
        .collect()
}

/// Creates the test of a case, which is ignored unless `cargo xtask chaos` provides the servers.
fn trial(case: &'static str, fault: Fault) -> Trial {
    let (name, xtask, can_run) = match fault {
        Fault::Postgres(_) => ("pair", "postgres-pair", postgres::can_run()),
        Fault::Mysql(_) => ("mysql_pair", "mysql-pair", mysql::can_run()),
        Fault::Galera => ("galera", "mysql-pair", mysql::can_group()),
        Fault::Set(_) => ("set", "mongodb-set", set_url().is_some()),
    };
    let why = format!(
        "this case needs servers of its own, which `cargo xtask chaos {xtask}` \
         starts"
    );
    let name = format!("topology::{name}::{case}");
    match can_run {
        true => Trial::test(name, move || run(case, fault)),
        false => Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why)))
            .with_ignored_flag(true),
    }
}

/// Returns the URL of the replica set of three members, if the tests may stop members.
fn set_url() -> Option<String> {
    env::var_os("RATCHET_CHAOS_STOP")?;
    let url = env::var(Backend::MongoDb.variable()).ok()?;
    (url.matches(',').count() == 2).then_some(url)
}

fn run(case: &str, fault: Fault) -> Result<(), Failed> {
    verdict::check_itself();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let rounds =
        env::var("RATCHET_CHAOS_TOPOLOGY_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let mut total = Figures::default();
    for round in 1..=rounds {
        let schema = format!("chaos_{}_{round}", std::process::id());
        let figures = match fault {
            Fault::Postgres(fault) => runtime.block_on(async {
                with_pair(Pair::<Postgres>::new(fault).await, fault, schema).await
            }),
            Fault::Mysql(fault) => runtime.block_on(async {
                with_pair(Pair::<Mysql>::new(fault).await, fault, schema).await
            }),
            Fault::Galera => runtime.block_on(async {
                let fault = pair::Fault::Promotion(Duration::ZERO);
                with_pair(mysql::group().await, fault, schema).await
            }),
            Fault::Set(fault) => runtime.block_on(with_set(fault, schema)),
        };
        println!("    {figures}");
        total.add(&figures);
    }
    println!("{case}: {total}");
    let refusable = match fault {
        Fault::Postgres(pair::Fault::Silence) | Fault::Mysql(pair::Fault::Silence) => {
            Some(scene::PRODUCERS)
        }
        _ => None,
    };
    match total.is_clean(refusable) {
        true => Ok(()),
        false => Err(total.to_string().into()),
    }
}

async fn with_pair<S: Server>(mut pair: Pair<S>, fault: pair::Fault, schema: String) -> Figures {
    let endpoints = pair.endpoints.iter();
    let urls: Vec<String> = endpoints.map(|way| S::url(way.address)).collect();
    let watch = async || {
        let server = pair.server_at_first();
        server.execute(&S::watch_ends(&schema)).await;
    };
    let mut scene = Scene::new(S::BACKEND, schema.clone(), &urls, watch).await;
    let event = pair.disturb(fault, &mut scene).await;
    judge(&mut scene, &event, async || {
        read::sql(pair.server(), &schema).await
    })
    .await
}

async fn with_set(fault: set::Fault, schema: String) -> Figures {
    let url = set_url().unwrap();
    set::prepare(&url).await;
    let urls = vec![url; ENDPOINTS];
    let mut scene = Scene::new(Backend::MongoDb, schema, &urls, async || {}).await;
    let event = set::disturb(fault, &mut scene).await;
    let order = scene.order.clone();
    let figures = judge(&mut scene, &event, async || read::mongodb(&order).await).await;
    drop(scene);
    crate::mongodb::drop_database(&order).await;
    figures
}

/// Waits until every job in the database has ended, or until the deadline.
async fn judge(scene: &mut Scene, event: &Event, read: impl AsyncFn() -> Stored) -> Figures {
    scene.is_over();
    sleep(AFTER).await;
    while verdict::runs_again(scene, event).is_none() && now() < event.since + AT_MOST {
        sleep(Duration::from_millis(500)).await;
    }
    scene.stop_producing().await;
    let mut stored = read().await;
    while stored.jobs.values().any(|job| !job.ended) && now() < event.since + BOUND {
        sleep(Duration::from_secs(1)).await;
        stored = read().await;
    }
    Figures::of(scene, event, &stored)
}

/// Returns the time in milliseconds on the clock of this machine, which workers and servers share.
fn now() -> i64 {
    time::to_millis(time::wall_clock())
}

/// Registers the jobs of these cases with a worker.
pub(crate) fn register(worker: NodeBuilder) -> NodeBuilder {
    worker
        .register::<As<0>>()
        .register::<As<1>>()
        .register::<As<2>>()
}
