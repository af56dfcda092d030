//! Users and privileges, on a separate server that checks them.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use ratchet_conformance::kit::{assert_kind, enqueue, job, request_all};
use ratchet_core::cluster::Wakeup;
use ratchet_core::model::{Fenced, Finding, Outcome, PurgeRequest, Settlement, Severity};
use ratchet_core::store::{Checked, DiagnosticStore, JobStore, LockStore, NodeStore, Store};
use ratchet_core::{JobId, JobState, Json, Name, StoreErrorKind};
use ratchet_store_mongo::MongoStore;

use crate::server::{self, Space};

/// The privileges that a user of the store needs. The last two are needed only if the store must
/// create collections or indexes.
const RIGHTS: [&str; 9] = [
    "find",
    "insert",
    "update",
    "remove",
    "listCollections",
    "listIndexes",
    "changeStream",
    "createCollection",
    "createIndex",
];

/// A replica set with one member, run with the program that [`PROGRAM`](server::PROGRAM) names.
struct Secured {
    process: Child,
    directory: PathBuf,
    port: u16,
    admin: Database,
}

impl Drop for Secured {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Secured {
    async fn start() -> Self {
        let program = server::PROGRAM.url().unwrap();
        let directory = std::env::temp_dir().join(format!("ratchet-users-{}", JobId::new()));
        std::fs::create_dir_all(directory.join("db")).unwrap();
        let key = directory.join("key");
        std::fs::write(&key, "cmF0Y2hldCByYXRjaGV0").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let port = {
            let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            held.local_addr().unwrap().port()
        };
        let process = Command::new(program)
            .arg("--dbpath")
            .arg(directory.join("db"))
            .arg("--keyFile")
            .arg(&key)
            .args(["--port", &port.to_string(), "--bind_ip", "127.0.0.1"])
            .args(["--nounixsocket", "--replSet", "rs0", "--oplogSize", "64"])
            .args(["--wiredTigerCacheSizeGB", "0.25"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // While no user exists, any local client may create the first user.
        let url = |user: &str| format!("mongodb://{user}127.0.0.1:{port}/?directConnection=true");
        let first = Client::with_uri_str(url("")).await.unwrap();
        let first = first.database("admin");
        let members = doc! { "_id": 0, "host": format!("127.0.0.1:{port}") };
        let initiate = doc! { "replSetInitiate": { "_id": "rs0", "members": [members] } };
        first.run_command(initiate).await.unwrap();
        let root = doc! { "createUser": "root", "pwd": "root", "roles": ["root"] };
        while first.run_command(root.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let admin = Client::with_uri_str(url("root:root@")).await.unwrap();
        let secured = Self {
            process,
            directory,
            port,
            admin: admin.database("admin"),
        };
        secured
            .run(doc! { "createRole": "worker", "privileges": [], "roles": [] })
            .await;
        secured.allow(&RIGHTS).await;
        secured.create_user().await;
        secured
    }

    async fn run(&self, command: Document) {
        self.admin.run_command(command).await.unwrap();
    }

    /// Replaces the privileges of the user by these actions.
    async fn allow(&self, actions: &[&str]) {
        let resource = doc! { "db": "jobs", "collection": "" };
        let privilege = doc! { "resource": resource, "actions": actions.to_vec() };
        self.run(doc! { "updateRole": "worker", "privileges": [privilege] })
            .await;
    }

    async fn create_user(&self) {
        self.run(doc! { "createUser": "app", "pwd": "app", "roles": ["worker"] })
            .await;
    }

    async fn open(&self) -> Checked<MongoStore> {
        let port = self.port;
        let url =
            format!("mongodb://app:app@127.0.0.1:{port}/jobs?replicaSet=rs0&authSource=admin");
        MongoStore::connect(&url).await.unwrap()
    }
}

async fn codes(store: &Checked<MongoStore>) -> Vec<Finding> {
    let mut findings = store.findings().await.unwrap();
    findings.retain(|finding| finding.severity > Severity::Info || finding.code == "not_seen");
    findings
}

pub(crate) async fn the_rights_in_the_guide_are_enough(_: Arc<Space>) {
    let server = Secured::start().await;
    server.open().await;
    // The collections already exist, so the user needs no privilege to create them.
    server.allow(&RIGHTS[..7]).await;
    let store = server.open().await;
    let coordinator = store.coordinator().unwrap();
    let mut wakeups = coordinator.subscribe();
    let jobs = [job().lane("l"), job().idempotency_key("i").unique_key("u")];
    store.enqueue(&jobs).await.unwrap();
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    let done = |outcome| Settlement::new(claimed[0].claim.token, outcome);
    let done = done(Outcome::Succeeded { result: None });
    assert_eq!(store.settle(&[done]).await.unwrap(), [Fenced::Applied]);
    let purge = PurgeRequest::new(JobState::Succeeded, Duration::ZERO, 1);
    store.purge(&purge).await.unwrap();
    store.database_time().await.unwrap();
    let lock = Name::new("lock", "l").unwrap();
    store
        .acquire(&lock, &lock, Duration::from_secs(9))
        .await
        .unwrap();
    let woken = async {
        loop {
            coordinator.notify(Wakeup::any()).await;
            let next = tokio::time::timeout(Duration::from_millis(500), wakeups.next());
            if next.await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), woken)
        .await
        .unwrap();
    assert_eq!(codes(&store).await, []);

    let without: Vec<&str> = RIGHTS[..7]
        .iter()
        .copied()
        .filter(|one| *one != "changeStream")
        .collect();
    server.allow(&without).await;
    let findings = codes(&store).await;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].code, "no_wakeups");
    assert_eq!(findings[0].severity, Severity::Warning);
}

pub(crate) async fn a_missing_right_does_not_show_a_result(_: Arc<Space>) {
    let server = Secured::start().await;
    let store = server.open().await;
    enqueue(&store, job()).await;
    let claimed = store.claim_next_batch(&request_all()).await.unwrap();
    server.allow(&["find", "insert"]).await;
    let result = Some(Json::encode("result", &"secret").unwrap());
    let done = Settlement::new(claimed[0].claim.token, Outcome::Succeeded { result });
    let error = store.settle(&[done]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    let text = format!("{error} {error:?}");
    assert!(!text.contains("secret"), "{text}");
    assert!(text.contains("not authorized on jobs"), "{text}");
}

pub(crate) async fn a_user_that_was_dropped_and_created_again_is_let_in(_: Arc<Space>) {
    let server = Secured::start().await;
    let store = server.open().await;
    enqueue(&store, job()).await;
    store.database_time().await.unwrap();
    server.run(doc! { "dropUser": "app" }).await;
    let error = store.enqueue(&[job()]).await.unwrap_err();
    assert_kind(&error, StoreErrorKind::Misconfigured);
    server.create_user().await;
    let recovered = async {
        while store.enqueue(&[job()]).await.is_err() || NodeStore::nodes(&store).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recovered)
        .await
        .unwrap();
}
