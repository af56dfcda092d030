//! Three processes of the shop on one database: one gets SIGTERM, and one is killed while it runs
//! jobs.

#![expect(clippy::unwrap_used, reason = "an error of a helper fails the test")]

mod program;

use std::env;
use std::io::{Write, stderr};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use program::{Program, request};
use ratchet::postgres::sqlx::{self, Connection, PgConnection};
use ratchet::{
    AttemptOutcome, BatchId, Client, JobFilter, JobOrder, JobRecord, JobState, PageRequest, Ratchet,
};
use ratchet_conformance::is_required;
use shop_example::db::{Db, OrderRow};
use shop_example::http::Import;
use shop_example::orders::{BIG, Order};

const CUSTOMERS: usize = 6;
const ORDERS_EACH: usize = 5;
const IMPORTED: usize = 7;

/// The time limit of the test, which only a hanging test reaches.
const SAFETY_NET: Duration = Duration::from_secs(180);

/// The delay between two checks of a condition.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn no_order_is_lost_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    guarded(folder.path(), file.to_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_is_lost_on_postgres() {
    let Ok(server) = env::var("RATCHET_TEST_POSTGRES_URL") else {
        let missing = "NOT TESTED on PostgreSQL: RATCHET_TEST_POSTGRES_URL is not set";
        assert!(!is_required("postgres"), "{missing}");
        // This is written to stderr directly, since the output of a passing test is captured.
        writeln!(stderr(), "{missing}").unwrap();
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let name = format!("shop_{}", std::process::id());
    let mut admin = PgConnection::connect(&server).await.unwrap();
    let run = async |admin: &mut PgConnection, sql: String| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(admin)
            .await
            .unwrap();
    };
    run(
        &mut admin,
        format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
    )
    .await;
    run(&mut admin, format!("CREATE DATABASE {name}")).await;
    let url = with_database(&server, &name);
    let ended = AssertUnwindSafe(guarded(folder.path(), &url)).catch_unwind();
    let ended = ended.await;
    run(&mut admin, format!("DROP DATABASE {name} WITH (FORCE)")).await;
    ended.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Returns `url` with its database name replaced by `name`.
fn with_database(url: &str, name: &str) -> String {
    let (address, settings) = url
        .split_once('?')
        .map_or((url, None), |(a, s)| (a, Some(s)));
    let server = address
        .rsplit_once('/')
        .map_or(address, |(server, _)| server);
    settings.map_or(format!("{server}/{name}"), |settings| {
        format!("{server}/{name}?{settings}")
    })
}

/// Runs the scenario. If the scenario takes longer than `SAFETY_NET`, prints the logs of the
/// processes and panics.
async fn guarded(folder: &Path, url: &str) {
    if tokio::time::timeout(SAFETY_NET, scenario(folder, url))
        .await
        .is_err()
    {
        for label in ["shop-0", "shop-1", "shop-2"] {
            let log = std::fs::read_to_string(folder.join(format!("{label}.log")));
            eprintln!("--- {label}\n{}", log.unwrap_or_default());
        }
        panic!("expected all orders to be done within {SAFETY_NET:?}");
    }
}

async fn scenario(folder: &Path, url: &str) {
    // The simulated gateway of this process takes an hour to answer, so the process still runs the
    // first charges when the test kills it.
    let doomed = Program::start(folder, url, "shop-1", 3_600_000).await;
    let shop = Shop::new(url, vec![doomed.address]).await;
    for customer in 0..CUSTOMERS {
        shop.place(customer, 0).await;
    }
    shop.wait_until(async || shop.running().await.len() == 4)
        .await;
    let held = shop.running().await;

    let ending = Program::start(folder, url, "shop-0", 50).await;
    let steady = Program::start(folder, url, "shop-2", 50).await;
    shop.is_at(vec![ending.address, doomed.address, steady.address]);

    let everybody = (0..CUSTOMERS).map(|customer| shop.buy(customer));
    let buying = futures_util::future::join_all(everybody);
    let importing = shop.import();
    let disturbing = async {
        shop.wait_until(async || shop.rows("orders").await > CUSTOMERS * 2)
            .await;
        shop.is_at(vec![steady.address]);
        tokio::join!(ending.terminate(), doomed.kill());
        shop.wait_until(async || shop.rows("orders").await >= CUSTOMERS * 3)
            .await;
        let again = ["shop-0", "shop-1"].map(|label| Program::start(folder, url, label, 50));
        let again = futures_util::future::join_all(again).await;
        shop.is_at(
            again
                .iter()
                .chain([&steady])
                .map(|one| one.address)
                .collect(),
        );
        again
    };
    let ((), (), again) = tokio::join!(
        async {
            buying.await;
        },
        importing,
        disturbing
    );

    shop.wait_until(async || shop.all_mailed().await).await;
    shop.check_orders().await;
    shop.wait_until(async || shop.jobs().await.iter().all(|job| job.state.is_terminal()))
        .await;
    shop.check_jobs(&held).await;
    for program in again.into_iter().chain([steady]) {
        program.terminate().await;
    }
}

/// The shop, as its customers and its operator see it.
#[derive(Clone)]
struct Shop {
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
    db: Db,
    client: Client,
}

impl Shop {
    async fn new(url: &str, addresses: Vec<SocketAddr>) -> Self {
        let db = Db::connect(url).await.unwrap();
        let client = Ratchet::client(db.store());
        Self {
            addresses: Arc::new(Mutex::new(addresses)),
            db,
            client,
        }
    }

    /// Sets the addresses of the processes that take requests.
    fn is_at(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.lock().unwrap() = addresses;
    }

    async fn wait_until(&self, condition: impl AsyncFn() -> bool) {
        while !condition().await {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Sends a request to the processes in turn, until a process answers with a status of success.
    async fn send(&self, method: &str, path: &str, body: &str) -> String {
        for turn in 0.. {
            let address = {
                let addresses = self.addresses.lock().unwrap();
                addresses[turn % addresses.len()]
            };
            match request(address, method, path, body).await {
                Ok((200..=299, answer)) => return answer,
                Ok((404 | 503, _)) | Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
                Ok((status, answer)) => panic!(
                    "expected a success from {method} {path}, found \
                     {status} {answer}"
                ),
            }
        }
        unreachable!("the loop should never end")
    }

    async fn place(&self, customer: usize, number: usize) {
        let order = serde_json::to_string(&order(customer, number)).unwrap();
        self.send("POST", "/orders", &order).await;
    }

    /// Places all orders of a customer one after the other, and approves the big order.
    async fn buy(&self, customer: usize) {
        for number in 0..ORDERS_EACH {
            self.place(customer, number).await;
        }
        self.approve(customer).await;
    }

    async fn approve(&self, customer: usize) {
        let big = order(customer, ORDERS_EACH - 1);
        assert!(big.cents >= BIG);
        // Until the order is charged, no job waits for the approval, and the answer is 404. `send`
        // repeats the request after such an answer.
        self.send("POST", &format!("/orders/{}/approve", big.id), "")
            .await;
    }

    /// Imports the orders of one more customer, and approves the big order.
    async fn import(&self) {
        let orders = (0..IMPORTED)
            .map(|number| order(CUSTOMERS, number))
            .collect();
        let import = serde_json::to_string(&Import {
            batch: BatchId::new(),
            orders,
        })
        .unwrap();
        self.send("POST", "/import", &import).await;
        self.wait_until(async || self.rows("imports").await == 1)
            .await;
        for column in ["total", "succeeded"] {
            assert_eq!(
                self.number(&format!("SELECT {column} FROM imports")).await,
                IMPORTED
            );
        }
        self.approve(CUSTOMERS).await;
    }

    async fn number(&self, sql: &str) -> usize {
        // The test has few such statements, so it may leak their texts.
        let sql: &'static str = String::leak(sql.to_owned());
        usize::try_from(self.db.number(sql, vec![]).await.unwrap()).unwrap()
    }

    async fn rows(&self, table: &str) -> usize {
        self.number(&format!("SELECT COUNT(*) FROM {table}")).await
    }

    async fn all_mailed(&self) -> bool {
        let mailed = self
            .number("SELECT COUNT(*) FROM orders WHERE status = 'mailed'")
            .await;
        mailed == CUSTOMERS * ORDERS_EACH + IMPORTED
    }

    /// Reads every order over HTTP, and checks that it was charged once, mailed, and packed in
    /// order.
    async fn check_orders(&self) {
        for (customer, number) in (0..CUSTOMERS).flat_map(|c| (0..ORDERS_EACH).map(move |n| (c, n)))
        {
            let order = order(customer, number);
            let row = self.send("GET", &format!("/orders/{}", order.id), "").await;
            let row: OrderRow = serde_json::from_str(&row).unwrap();
            assert_eq!((&row.customer, row.cents), (&order.customer, order.cents));
            assert_eq!(
                (row.status.as_str(), row.packed),
                ("mailed", i64::try_from(number + 1).ok())
            );
            assert!(row.mails >= 1);
        }
        assert_eq!(
            self.rows("charges").await,
            CUSTOMERS * ORDERS_EACH + IMPORTED
        );
    }

    /// Checks that no job is a dead letter, and that only jobs of the killed process have crashed.
    /// `held` are jobs that this process was certainly running.
    async fn check_jobs(&self, held: &[JobRecord]) {
        let killed = held.first().and_then(|job| job.node);
        for job in self.jobs().await {
            let mut lost = self.client.history(job.id).await.unwrap();
            lost.retain(|claim| claim.outcome == AttemptOutcome::Lost);
            assert!(
                lost.iter().all(|claim| claim.node == killed),
                "{job:?}: {lost:?}"
            );
            assert_eq!(
                usize::try_from(job.crash_count).unwrap(),
                lost.len(),
                "{job:?}"
            );
            // The process may have held other jobs too when it was killed, but it certainly held
            // those in `held`.
            if held.iter().any(|held| held.id == job.id) {
                assert_eq!(job.crash_count, 1, "{job:?}");
            }
            // The test approves every big order, so no order expires, and all jobs of kind `expire`
            // are cancelled.
            let expires = job.spec.route.kind == "expire";
            let end = if expires {
                JobState::Cancelled
            } else {
                JobState::Succeeded
            };
            assert_eq!(job.state, end, "{job:?}");
        }
    }

    async fn running(&self) -> Vec<JobRecord> {
        self.list(&JobFilter::all().state(JobState::Running)).await
    }

    async fn jobs(&self) -> Vec<JobRecord> {
        self.list(&JobFilter::all()).await
    }

    async fn list(&self, filter: &JobFilter) -> Vec<JobRecord> {
        let page = PageRequest::first(1_000).order(JobOrder::OldestFirst);
        let page = self.client.list(filter, &page).await.unwrap();
        assert_eq!(page.next, None, "expected all jobs on one page");
        page.jobs
    }
}

fn order(customer: usize, number: usize) -> Order {
    // The third order costs 1,207 cents. At the first attempt, the gateway refuses amounts that end
    // in 7, so this charge is retried.
    let cents = if number + 1 == ORDERS_EACH {
        BIG
    } else {
        1_205 + i64::try_from(number).unwrap()
    };
    Order {
        id: format!("{customer}-{number}"),
        customer: format!("customer-{customer}"),
        cents,
    }
}
