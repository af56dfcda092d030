//! The cases, each of which disturbs the leader in a different way.

use std::env;
use std::pin::Pin;
use std::time::Duration;

use libtest_mimic::{Completion, Trial};
use ratchet_conformance::is_required;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::time::sleep;

use crate::cluster::{Cluster, Times, now};
use crate::judge;

/// Disturbs the leader, waits for the promotion and the recovery, and returns their times.
type Disturb =
    for<'a> fn(&'a mut Cluster, Duration) -> Pin<Box<dyn Future<Output = Seen> + Send + 'a>>;

/// The times that a case took, and what the judge must allow in it.
pub(crate) struct Seen {
    promotion: Duration,
    recovery: Duration,
    /// Whether a body may begin again.
    may_repeat: bool,
    /// The process that was stopped and then continued.
    stopped: Option<u32>,
}

/// A kind of failover.
pub(crate) struct Case {
    name: &'static str,
    size: usize,
    needs_network: bool,
    /// Whether locks end with the session of their holder. Their TTL is then far longer than the
    /// test.
    session_locks: bool,
    disturb: Disturb,
}

/// The factor by which the TTL is longer for locks that end with their session.
const FAR_LONGER: u32 = 40;

/// Every case.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "a_killed_leader_is_followed",
        size: 3,
        needs_network: false,
        session_locks: false,
        disturb: |cluster, _| Box::pin(kill(cluster)),
    },
    Case {
        name: "session_locks_of_a_killed_leader_end_with_it",
        size: 3,
        needs_network: false,
        session_locks: true,
        disturb: |cluster, ttl| Box::pin(kill_at_any_time(cluster, ttl)),
    },
    Case {
        name: "a_leader_that_was_stopped_is_fenced_when_it_goes_on",
        size: 3,
        needs_network: false,
        session_locks: false,
        disturb: |cluster, ttl| Box::pin(stop(cluster, ttl)),
    },
    Case {
        name: "a_leader_cut_off_from_its_database_is_followed",
        size: 3,
        needs_network: true,
        session_locks: false,
        disturb: |cluster, ttl| Box::pin(cut(cluster, ttl)),
    },
    Case {
        name: "a_rolling_restart_drops_nothing",
        size: 4,
        needs_network: false,
        session_locks: false,
        disturb: |cluster, _| Box::pin(restart_all(cluster)),
    },
];

async fn kill(cluster: &mut Cluster) -> Seen {
    let leader = cluster.leader().await;
    let mut killed = cluster.processes.remove(leader);
    let since = now();
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let seen = watch(cluster, since).await;
    cluster.spawn().await;
    seen
}

/// Kills the leader at a random point between two turns of the candidates. Without the random
/// delay, the kill would always come at the same point of a turn, because the test waits for a
/// multiple of the turn first.
async fn kill_at_any_time(cluster: &mut Cluster, ttl: Duration) -> Seen {
    let turn = i64::try_from((ttl / 4).as_millis()).unwrap();
    sleep(Duration::from_millis((now() % turn).cast_unsigned())).await;
    kill(cluster).await
}

async fn stop(cluster: &mut Cluster, ttl: Duration) -> Seen {
    let (leader, since) = loop {
        let leader = cluster.leader().await;
        let since = now();
        cluster.processes[leader].signal("-STOP");
        if cluster.can_be_written().await {
            break (leader, since);
        }
        // A leader stopped within a write keeps the SQLite file locked, so that no other process
        // can take over or write at all. Then the leader is continued, and stopped again a little
        // later.
        cluster.processes[leader].signal("-CONT");
        sleep(Duration::from_millis(20)).await;
    };
    let seen = watch(cluster, since).await;
    sleep(ttl).await;
    cluster.processes[leader].signal("-CONT");
    // Before its samples are judged, the continued process gets time to find out that it no longer
    // leads.
    sleep(ttl).await;
    Seen {
        stopped: Some(cluster.processes[leader].child.id()),
        ..seen
    }
}

async fn cut(cluster: &mut Cluster, ttl: Duration) -> Seen {
    let leader = cluster.leader().await;
    let since = now();
    cluster.processes[leader].way.as_ref().unwrap().cut(true);
    let seen = watch(cluster, since).await;
    sleep(ttl).await;
    cluster.processes[leader].way.as_ref().unwrap().cut(false);
    sleep(ttl).await;
    seen
}

async fn restart_all(cluster: &mut Cluster) -> Seen {
    let mut longest = Duration::ZERO;
    for _ in 0..cluster.processes.len() {
        cluster.spawn().await;
        let mut old = cluster.processes.remove(0);
        let led = cluster
            .samples()
            .iter()
            .rev()
            .find(|sample| sample.process == old.number)
            .is_some_and(|sample| sample.term > 0);
        let since = now();
        drop(old.child.stdin.take());
        let ended = tokio::task::spawn_blocking(move || old.child.wait().unwrap()).await;
        assert!(
            ended.unwrap().success(),
            "expected the worker to drain and exit with success"
        );
        if led {
            longest = longest.max(cluster.promoted(since).await);
        }
    }
    Seen {
        promotion: longest,
        recovery: Duration::ZERO,
        may_repeat: false,
        stopped: None,
    }
}

async fn watch(cluster: &Cluster, since: i64) -> Seen {
    let promotion = cluster.promoted(since).await;
    let recovery = cluster.recovered(since).await;
    Seen {
        promotion,
        recovery,
        may_repeat: true,
        stopped: None,
    }
}

impl Case {
    /// Returns whether the case needs a database server, to which processes have connections.
    pub(crate) const fn needs_server(&self) -> bool {
        self.needs_network || self.session_locks
    }

    /// Returns whether the case can run on this server. Only the locks of PostgreSQL can end with
    /// their session.
    pub(crate) fn runs_on(&self, backend: &str) -> bool {
        !self.session_locks || backend == "postgres"
    }

    /// Returns the test of the case on the database at `url`. An empty URL means a new file for the
    /// case. Without a URL, but with the reason, the test is ignored, or fails if the backend is
    /// required.
    pub(crate) fn trial(&'static self, backend: &str, url: Result<String, String>) -> Trial {
        let name = format!("{backend}::{}", self.name);
        let required = is_required(backend);
        let url = match url {
            Ok(url) => url,
            Err(reason) => {
                return Trial::ignorable_test(name, move || match required {
                    true => Err(reason.into()),
                    false => Ok(Completion::ignored_with(reason)),
                })
                .with_ignored_flag(!required);
            }
        };
        Trial::test(name, move || {
            judge::check_itself();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;
            runtime.block_on(self.run(&url));
            Ok(())
        })
    }

    async fn run(&self, server: &str) {
        let strict = env::var("RATCHET_FAILOVER_TTL_MILLIS").ok();
        let millis = strict
            .as_ref()
            .map_or(1_500, |millis| millis.parse().unwrap());
        let ttl = Duration::from_millis(millis);
        let database = Database::create(server, self.name).await;
        let mut url = database.url.clone();
        let mut lock = ttl;
        if self.session_locks {
            url += "?session_locks=true";
            lock *= FAR_LONGER;
        }
        let times = Times { ttl, lock };
        let mut cluster = Cluster::new(&url, times, self.size, self.needs_network).await;
        // The cluster runs for a while before the disturbance.
        sleep(ttl).await;
        let seen = (self.disturb)(&mut cluster, ttl).await;
        let acknowledged = cluster.finish().await;
        let reign = judge::judge_leaders(&cluster.samples()).unwrap();
        let bodies = cluster.bodies();
        let inversions = judge::inversions(&bodies, seen.stopped);
        let again = judge::judge_jobs(&cluster.client, &acknowledged, &bodies).await;
        println!(
            "    promotion {} ms, recovery {} ms (ttl {} ms); {} samples, {} terms, one leader each; \
             {} jobs acknowledged and succeeded, {again} bodies began again, {} inversions",
            seen.promotion.as_millis(),
            seen.recovery.as_millis(),
            lock.as_millis(),
            reign.samples,
            reign.terms,
            acknowledged.len(),
            inversions.len(),
        );
        assert!(
            inversions.is_empty(),
            "expected the steps of each lane to begin in order, found these out of order: \
             {inversions:?}"
        );
        assert!(
            seen.may_repeat || again == 0,
            "expected no body to begin again in a rolling restart, found {again}"
        );
        let heartbeat = ttl / 4;
        if self.session_locks {
            assert!(
                seen.promotion < lock / 2,
                "expected the lock to be released before half of its TTL, found a promotion after \
                 {:?}",
                seen.promotion
            );
        }
        if strict.is_some() {
            let limit = match self.session_locks {
                true => 2 * heartbeat,
                false => ttl + heartbeat,
            };
            assert!(
                seen.promotion <= limit,
                "promotion took {:?}",
                seen.promotion
            );
            assert!(
                seen.recovery <= 2 * ttl,
                "recovery took {:?}",
                seen.recovery
            );
        }
        drop(cluster);
        database.remove().await;
    }
}

/// A database that a case creates on a server, and drops at the end. A case on SQLite needs none,
/// because its file is deleted with its folder.
struct Database {
    server: String,
    name: String,
    url: String,
}

impl Database {
    async fn create(server: &str, case: &str) -> Self {
        let name = format!("failover_{}_{}", &case[..12], std::process::id());
        let mut url = String::new();
        if !server.is_empty() {
            let (base, _) = server.rsplit_once('/').unwrap();
            url = format!("{base}/{name}");
            run(server, format!("CREATE DATABASE {name}")).await;
        }
        Self {
            server: server.to_owned(),
            name,
            url,
        }
    }

    async fn remove(self) {
        if !self.url.is_empty() {
            let mut drop = format!("DROP DATABASE {}", self.name);
            if !is_mysql(&self.server) {
                drop += " WITH (FORCE)";
            }
            run(&self.server, drop).await;
        }
    }
}

fn is_mysql(server: &str) -> bool {
    server.starts_with("mysql:")
}

async fn run(server: &str, sql: String) {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql));
    if is_mysql(server) {
        let mut admin = MySqlConnection::connect(server).await.unwrap();
        sql.execute(&mut admin).await.unwrap();
    } else {
        let mut admin = PgConnection::connect(server).await.unwrap();
        sql.execute(&mut admin).await.unwrap();
    }
}
