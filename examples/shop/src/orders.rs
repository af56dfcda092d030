//! Orders, and the workflow that fulfils an order.

use std::time::Duration;

use anyhow::Result;
use ratchet::{Client, Job, NewJob, Workflow};
use serde::{Deserialize, Serialize};

use crate::db::Db;
use crate::jobs::{Charge, Expire, Mail, Pack, Ship};

/// Smallest price of a big order, in cents. A big order is shipped only after an approval.
pub const BIG: i64 = 50_000;

/// Maximum time that a big order waits for its approval.
pub const APPROVAL: Duration = Duration::from_secs(3 * 86_400);

/// An order that a customer places. The client chooses the id, so the client can safely repeat the
/// request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The id of the order.
    pub id: String,
    /// The customer who placed the order.
    pub customer: String,
    /// The price in cents.
    pub cents: i64,
}

/// Returns the name of the signal that approves an order.
#[must_use]
pub fn approval(order: &str) -> String {
    format!("approve/{order}")
}

impl Order {
    /// Stores the order and enqueues its charge, in one transaction. Returns `false` if the order
    /// was placed before.
    ///
    /// # Errors
    /// If the database fails, or the order is invalid.
    pub async fn place(self, db: &Db, client: &Client) -> Result<bool> {
        let Self {
            id,
            customer,
            cents,
        } = self;
        let charge = Charge {
            order: id.clone(),
            customer: customer.clone(),
            cents,
        }
        .into_job();
        let sql = "INSERT INTO orders (id, customer, cents, status) VALUES ($1, $2, $3, 'placed')
                   ON CONFLICT (id) DO NOTHING";
        db.insert_with_jobs(
            client,
            sql,
            vec![id.into(), customer.into(), cents.into()],
            vec![charge],
        )
        .await
    }
}

/// Creates the jobs that follow a charge: pack, ship and mail. A fourth job marks the order as
/// expired if the order cannot be shipped, for example because its approval did not come in time.
///
/// The charge is not part of this workflow, because the job that packs the order would have to wait
/// for the charge. The packing job is in a lane, and a job in a lane cannot wait for another job.
#[must_use]
pub fn fulfilment(charge: &Charge) -> Vec<NewJob> {
    let order = || charge.order.clone();
    let flow = Workflow::new();
    let pack = flow.add(
        Pack {
            order: order(),
            customer: charge.customer.clone(),
        }
        .into_job(),
    );
    let ship = flow
        .add(
            Ship {
                order: order(),
                big: charge.cents >= BIG,
            }
            .into_job(),
        )
        .after(&pack);
    flow.add(Mail { order: order() }.into_job()).after(&ship);
    flow.add(Expire { order: order() }.into_job())
        .after_failure(&ship);
    flow.jobs()
}
