//! An order and its jobs in one PostgreSQL transaction: either both are stored, or neither.
//!
//! ```sh
//! RATCHET_TEST_POSTGRES_URL=postgres://… \
//!     cargo run --release -p transactional-enqueue-example
//! ```
//!
//! The example creates a separate schema and drops it at the end. `cargo xtask db up` starts a
//! server to try it on.
#![expect(clippy::print_stdout, reason = "the example prints what happens")]

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ratchet::postgres::PostgresStore;
use ratchet::{Client, Enqueued, Job, JobContext, JobResult, JobState, Ratchet, Requires};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Postgres, Transaction};

/// A job that charges the customer of an order. Its body reads the order from the database, so the
/// order must be committed before the body runs.
#[derive(Serialize, Deserialize)]
struct Charge {
    order: i64,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    type Output = ();

    fn requires() -> Requires {
        Requires::nothing().state::<Shop>()
    }

    async fn run(self, ctx: JobContext) -> JobResult<()> {
        let Shop { pool, schema } = ctx.state();
        let order = format!("SELECT item FROM {schema}.orders WHERE id = $1");
        let order = sqlx::query_scalar(AssertSqlSafe(order)).bind(self.order);
        let item: String = order.fetch_one(pool).await?;
        println!("  charged order {}, {item}", self.order);
        Ok(())
    }
}

/// A job that sends the customer a confirmation of an order.
#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Job for Confirm {
    const KIND: &'static str = "confirm";
    type Output = ();

    async fn run(self, _ctx: JobContext) -> JobResult<()> {
        println!("  confirmed order {}", self.order);
        Ok(())
    }
}

/// The database that the application and Ratchet share.
#[derive(Clone)]
struct Shop {
    pool: PgPool,
    schema: String,
}

impl Shop {
    async fn prepare(&self) -> Result<()> {
        let schema = &self.schema;
        let create = format!(
            "CREATE SCHEMA {schema};
             CREATE TABLE {schema}.orders (
                 id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL)"
        );
        sqlx::raw_sql(AssertSqlSafe(create))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Inserts an order and enqueues its jobs in `transaction`. The order and the jobs become
    /// visible when the caller commits.
    async fn order(
        &self,
        client: &Client,
        transaction: &mut Transaction<'_, Postgres>,
        item: &str,
    ) -> Result<Vec<Enqueued>> {
        let insert = format!(
            "INSERT INTO {}.orders (item) VALUES ($1) RETURNING id",
            self.schema
        );
        let insert = sqlx::query_scalar(AssertSqlSafe(insert)).bind(item);
        let order: i64 = insert.fetch_one(&mut **transaction).await?;
        let jobs = [Charge { order }.into_job(), Confirm { order }.into_job()];
        Ok(client.enqueue_all_in(transaction, &jobs).await?)
    }

    async fn report(&self, client: &Client) -> Result<()> {
        let orders = format!("SELECT count(*) FROM {}.orders", self.schema);
        let orders: i64 = sqlx::query_scalar(AssertSqlSafe(orders))
            .fetch_one(&self.pool)
            .await?;
        let queues = client.queues().await?;
        let jobs: u64 = queues.iter().flat_map(|queue| queue.counts.values()).sum();
        println!("  now stored: {orders} orders, {jobs} jobs");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let Ok(url) = std::env::var("RATCHET_TEST_POSTGRES_URL") else {
        bail!("RATCHET_TEST_POSTGRES_URL is not set; `cargo xtask db up` starts a server");
    };
    let shop = Shop {
        pool: PgPool::connect(&url)
            .await
            .context("no PostgreSQL answers")?,
        schema: format!("ratchet_example_{}", std::process::id()),
    };
    shop.prepare().await?;
    let shown = show(&url, &shop).await;
    let drop = format!("DROP SCHEMA {} CASCADE", shop.schema);
    sqlx::raw_sql(AssertSqlSafe(drop))
        .execute(&shop.pool)
        .await?;
    shown
}

async fn show(url: &str, shop: &Shop) -> Result<()> {
    // Ratchet's tables may be in a separate schema of the same database.
    let store = PostgresStore::builder(url)
        .schema(&shop.schema)
        .connect()
        .await?;
    let node = Ratchet::builder(std::sync::Arc::new(store))
        .register::<(Charge, Confirm)>()
        .state(shop.clone())
        .build()?;
    let client = node.client().clone();

    println!("An order whose transaction is rolled back:");
    let mut transaction = shop.pool.begin().await?;
    for enqueued in shop.order(&client, &mut transaction, "a lamp").await? {
        println!("  enqueued in the transaction: job {}", enqueued.id());
    }
    transaction.rollback().await?;
    shop.report(&client).await?;

    println!("\nAn order whose transaction commits:");
    let mut transaction = shop.pool.begin().await?;
    shop.order(&client, &mut transaction, "a chair").await?;
    transaction.commit().await?;
    shop.report(&client).await?;

    println!("\nA node runs only the committed jobs:");
    node.run_until(all_succeeded(&client)).await?;
    Ok(())
}

async fn all_succeeded(client: &Client) {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let queues = client.queues().await.unwrap_or_default();
        let mut states = queues.iter().flat_map(|queue| queue.counts.keys());
        if !queues.is_empty() && states.all(|state| *state == JobState::Succeeded) {
            return;
        }
    }
}
