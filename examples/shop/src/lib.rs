//! The order service of a shop.

pub mod db;
pub mod http;
pub mod jobs;
pub mod orders;

use std::time::Duration;

use ratchet::{DaemonContext, DaemonResult, Job, NodeBuilder, Overlap, Ratchet, Recurring};

use db::Db;
use jobs::{Charge, DailyReport, Expire, Gateway, ImportOrder, Mail, Pack, RecordImport, Ship};

/// Returns a builder for the node that both the program and the tests run.
pub fn node(db: &Db, gateway: Gateway) -> NodeBuilder {
    let report = Recurring::cron("0 6 * * *")
        .zone("Europe/Berlin")
        .overlap(Overlap::Skip);
    Ratchet::builder(db.store())
        .register::<(
            Charge,
            Pack,
            Ship,
            Mail,
            Expire,
            ImportOrder,
            RecordImport,
            DailyReport,
        )>()
        .state(db.clone())
        .state(gateway)
        .permits("card-gateway", 4)
        .recurring(report.job(DailyReport {}.into_job()).named("daily-report"))
        .daemon("approvals", remind)
}

/// Logs every hour how many packed orders wait for an approval. The cluster runs this function on
/// only one node at a time.
async fn remind(ctx: DaemonContext) -> DaemonResult {
    loop {
        let sql = "SELECT COUNT(*) FROM orders WHERE status = 'packed' AND cents >= $1";
        let waiting = ctx
            .state::<Db>()
            .number(sql, vec![orders::BIG.into()])
            .await?;
        tracing::info!(waiting, "orders wait for an approval");
        tokio::select! {
            () = ctx.stopped() => return Ok(()),
            () = tokio::time::sleep(Duration::from_secs(3_600)) => {}
        }
    }
}
