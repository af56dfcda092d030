//! MongoDB topologies: a replica set of three with the default election timeout.

use std::process::Command;
use std::time::Duration;

use mongodb::bson::{Bson, doc};
use mongodb::{Client, Database};
use tokio::time::{sleep, timeout};

use super::now;
use super::scene::{Event, Scene};
use crate::cases::shell;
use crate::mongodb::primary;
use crate::worker::Order;

/// A fault of the primary or of the secondaries.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    StepDown,
    Kill,
    /// Stops the primary with SIGSTOP, and later continues it with SIGCONT.
    Stop,
    /// Stops replication to the secondaries, so that no write reaches a majority.
    Stall,
}

/// The time under load before the fault.
const BEFORE: Duration = Duration::from_secs(5);
/// How long the primary is gone: longer than an election, which takes 10 to 12 s.
const GONE: Duration = Duration::from_secs(20);
/// How long replication stalls: longer than the deadline of a store call.
const STALLED: Duration = Duration::from_secs(15);
/// The deadline for all members to be up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until all members are up and one is the primary, and sets the default election timeout.
pub(crate) async fn prepare(url: &str) {
    let admin = admin(url).await;
    let waited = timeout(PATIENCE, async {
        while !whole(&admin).await {
            sleep(Duration::from_millis(100)).await;
        }
    });
    waited
        .await
        .expect("all members of the replica set should start");
    let config = admin.run_command(doc! { "replSetGetConfig": 1 }).await;
    let mut config = config.unwrap().get_document("config").unwrap().clone();
    let version = config.get_i32("version").unwrap();
    config.insert("version", version + 1);
    let settings = config.get_document_mut("settings").unwrap();
    settings.insert("electionTimeoutMillis", 10_000);
    let configure = doc! { "replSetReconfig": config };
    admin.run_command(configure).await.unwrap();
}

async fn whole(admin: &Database) -> bool {
    let Ok(status) = admin.run_command(doc! { "replSetGetStatus": 1 }).await else {
        return false;
    };
    let state = |member: &Bson| Some(member.as_document()?.get_str("stateStr").ok()?.to_owned());
    let members = status.get_array("members").unwrap().iter();
    let states: Vec<_> = members.filter_map(state).collect();
    let count = |name| states.iter().filter(|state| *state == name).count();
    (count("PRIMARY"), count("SECONDARY")) == (1, 2)
}

async fn admin(url: &str) -> Database {
    Client::with_uri_str(url).await.unwrap().database("admin")
}

pub(crate) async fn disturb(fault: Fault, scene: &mut Scene) -> Event {
    let order = scene.order.clone();
    sleep(BEFORE).await;
    scene.begin_late().await;
    let event = Event::nothing_lost(now());
    match fault {
        Fault::StepDown => {
            // Without `force`, the primary waits until a secondary has caught up, which then takes
            // over.
            let down = doc! { "replSetStepDown": 30 };
            admin(&order.url).await.run_command(down).await.unwrap();
        }
        Fault::Kill => {
            let (port, _) = primary(&order).await;
            shell("RATCHET_CHAOS_STOP", &port);
            sleep(GONE).await;
            shell("RATCHET_CHAOS_START", &port);
        }
        Fault::Stop => {
            let process = process(&order).await;
            signal("-STOP", process);
            sleep(GONE).await;
            signal("-CONT", process);
        }
        Fault::Stall => {
            receive(&order, false).await;
            sleep(STALLED).await;
            receive(&order, true).await;
            return Event::nothing_lost(now());
        }
    }
    event
}

/// Returns the process id of the primary.
async fn process(order: &Order) -> i64 {
    let admin = admin(&order.url).await;
    let status = admin.run_command(doc! { "serverStatus": 1 }).await.unwrap();
    status.get_i64("pid").unwrap()
}

fn signal(signal: &str, process: i64) {
    let sent = Command::new("kill")
        .args([signal, &process.to_string()])
        .status();
    assert!(
        sent.unwrap().success(),
        "could not send {signal} to the primary"
    );
}

/// Stops or resumes replication on the secondaries.
async fn receive(order: &Order, receives: bool) {
    let hello = admin(&order.url)
        .await
        .run_command(doc! { "hello": 1 })
        .await;
    let hello = hello.unwrap();
    let primary = hello.get_str("primary").unwrap();
    let mode = if receives { "off" } else { "alwaysOn" };
    for host in hello.get_array("hosts").unwrap() {
        let host = host.as_str().unwrap();
        if host != primary {
            let member = admin(&format!("mongodb://{host}/?directConnection=true")).await;
            let stall = doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
            member.run_command(stall).await.unwrap();
        }
    }
}
