//! The shop's background jobs. Every body may safely run more than once.

use std::time::Duration;

use ratchet::{BoxError, Job, JobContext, JobResult, NewJob, Requires, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::db::Db;
use crate::orders::{APPROVAL, Order, approval, fulfilment};

/// A simulated card gateway. Each charge takes some time, and some charges fail at their first
/// attempt.
#[derive(Debug, Clone, Copy)]
pub struct Gateway {
    /// The time that the gateway takes to answer.
    pub latency: Duration,
}

impl Gateway {
    async fn charge(self, cents: i64, attempt: u32) -> Result<(), &'static str> {
        tokio::time::sleep(self.latency).await;
        if attempt == 1 && cents % 10 == 7 {
            Err("the card gateway is busy")
        } else {
            Ok(())
        }
    }
}

/// A job that charges the customer's card. The orders of one customer are charged one after the
/// other.
///
/// In version 1 of the payload, the amount was a text, such as `"12.50"`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Charge {
    /// The id of the order.
    pub order: String,
    /// The customer of the order.
    pub customer: String,
    /// The amount to charge, in cents.
    pub cents: i64,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    const VERSION: u32 = 2;
    type Output = ();

    fn upcast(version: u32, mut payload: Value) -> Result<Value, BoxError> {
        if version < 2 {
            let amount = payload["amount"]
                .as_str()
                .ok_or("the payload has no amount")?;
            let (whole, cents) = amount
                .split_once('.')
                .filter(|(_, c)| c.len() == 2)
                .ok_or("the amount has no cents")?;
            payload["cents"] = json!(whole.parse::<i64>()? * 100 + cents.parse::<i64>()?);
        }
        Ok(payload)
    }

    fn requires() -> Requires {
        Requires::nothing().state::<Db>().state::<Gateway>()
    }

    fn defaults(job: NewJob) -> NewJob {
        let retry =
            RetryPolicy::exponential(8, Duration::from_millis(200), Duration::from_secs(60));
        job.queue("cards")
            .permit("card-gateway")
            .retry(retry.with_jitter(20))
            .timeout(Duration::from_secs(300))
    }

    fn configure(&self, job: NewJob) -> NewJob {
        job.lane(&self.customer)
            .tag(&format!("order:{}", self.order))
    }

    async fn run(self, ctx: JobContext) -> JobResult {
        ctx.state::<Gateway>()
            .charge(self.cents, ctx.attempt())
            .await?;
        // A body that runs again finds the row of the first run, and enqueues nothing.
        let sql = "INSERT INTO charges (order_id, cents) VALUES ($1, $2) ON CONFLICT (order_id) DO NOTHING";
        let args = vec![self.order.clone().into(), self.cents.into()];
        let db = ctx.state::<Db>();
        db.insert_with_jobs(ctx.client(), sql, args, fulfilment(&self))
            .await?;
        let sql = "UPDATE orders SET status = 'charged' WHERE id = $1 AND status = 'placed'";
        Ok(db.execute(sql, vec![self.order.into()]).await?)
    }
}

/// A job that packs an order. The orders of one customer are packed one after the other, in the
/// order in which they were placed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pack {
    /// The id of the order.
    pub order: String,
    /// The customer of the order.
    pub customer: String,
}

impl Job for Pack {
    const KIND: &'static str = "pack";
    type Output = ();

    fn requires() -> Requires {
        Requires::nothing().state::<Db>()
    }

    fn configure(&self, job: NewJob) -> NewJob {
        job.queue("warehouse").lane(&self.customer)
    }

    async fn run(self, ctx: JobContext) -> JobResult {
        // All `Pack` jobs of a customer are in one lane, and only the head of a lane runs. So no
        // other job counts the customer's packed orders at the same time.
        let sql = "UPDATE orders SET status = 'packed', packed = 1 + (SELECT COUNT(*) FROM orders o
                   WHERE o.customer = orders.customer AND o.packed IS NOT NULL) WHERE id = $1 AND packed IS NULL";
        ctx.state::<Db>()
            .execute(sql, vec![self.order.into()])
            .await?;
        Ok(())
    }
}

/// A job that ships an order. If the order is big, the job first waits for an approval.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ship {
    /// The id of the order.
    pub order: String,
    /// Whether the order is big, so that it needs an approval.
    pub big: bool,
}

impl Job for Ship {
    const KIND: &'static str = "ship";
    type Output = ();

    fn requires() -> Requires {
        Requires::nothing().state::<Db>()
    }

    fn configure(&self, job: NewJob) -> NewJob {
        let job = job.queue("warehouse");
        if self.big {
            job.wait_for(&approval(&self.order), APPROVAL)
        } else {
            job
        }
    }

    async fn run(self, ctx: JobContext) -> JobResult {
        let sql = "UPDATE orders SET status = 'shipped' WHERE id = $1 AND status = 'packed'";
        ctx.state::<Db>()
            .execute(sql, vec![self.order.into()])
            .await?;
        Ok(())
    }
}

/// Sends a mail that confirms a shipped order. The customer may receive the mail more than once.
#[ratchet::job(kind = "mail")]
pub(crate) async fn mail(order: String, db: &Db) -> JobResult {
    let sql = "UPDATE orders SET status = 'mailed', mails = mails + 1 WHERE id = $1";
    Ok(db.execute(sql, vec![order.into()]).await?)
}

/// Marks an order as expired, because its approval did not come in time.
#[ratchet::job(kind = "expire")]
pub(crate) async fn expire(order: String, db: &Db) -> JobResult {
    Ok(db
        .execute(
            "UPDATE orders SET status = 'expired' WHERE id = $1",
            vec![order.into()],
        )
        .await?)
}

/// Places one order of an import. Returns `false` if the order was placed before.
#[ratchet::job(kind = "import_order")]
pub(crate) async fn import_order(order: Order, db: &Db, ctx: &JobContext) -> JobResult<bool> {
    Ok(order.place(db, ctx.client()).await?)
}

/// Records how many orders an import had, and how many of them were placed.
#[ratchet::job(kind = "record_import")]
pub(crate) async fn record_import(db: &Db, ctx: &JobContext) -> JobResult {
    for batch in ctx.batches().await? {
        let record = batch.record.ok_or("the batch was purged")?;
        let (total, succeeded) = (
            i64::try_from(record.total)?,
            i64::try_from(record.succeeded)?,
        );
        let sql = "INSERT INTO imports (batch, total, succeeded) VALUES ($1, $2, $3) ON CONFLICT (batch) DO NOTHING";
        db.execute(
            sql,
            vec![batch.id.to_string().into(), total.into(), succeeded.into()],
        )
        .await?;
    }
    Ok(())
}

/// Counts the orders that have been shipped so far. Stores the count under the recurring slot of
/// this run, and returns the count.
#[ratchet::job(kind = "daily_report")]
pub(crate) async fn daily_report(db: &Db, ctx: &JobContext) -> JobResult<i64> {
    let slot = ctx.slot().unwrap_or_else(|| ctx.run_at());
    let shipped = db
        .number(
            "SELECT COUNT(*) FROM orders WHERE status IN ('shipped', 'mailed')",
            vec![],
        )
        .await?;
    let sql = "INSERT INTO reports (slot, shipped) VALUES ($1, $2) ON CONFLICT (slot) DO NOTHING";
    db.execute(sql, vec![slot.to_string().into(), shipped.into()])
        .await?;
    Ok(shipped)
}
