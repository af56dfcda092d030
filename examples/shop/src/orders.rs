//! Orders, and the workflow that fulfils an order.

use std::time::Duration;

use anyhow::Result;
use ratchet::{Client, Job, NewJob, Workflow};
use serde::{Deserialize, Serialize};

use crate::db::Db;
use crate::jobs::{Charge, Expire, Mail, Pack, Ship};

/// Orders of at least this amount are shipped only after an approval.
pub const BIG: i64 = 50_000;

/// How long a big order waits for its approval.
pub const APPROVAL: Duration = Duration::from_secs(3 * 86_400);

/// An order of a customer. The client chooses the id, so it can repeat a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// The id of the order.
    pub id: String,
    /// The customer who orders.
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
    /// Stores the order and enqueues its charge, in one transaction. Returns false if the order was
    /// placed before.
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

/// Returns the jobs after a charge: pack, ship, mail. An order whose approval does not come in time
/// expires.
///
/// These jobs do not form one workflow with the charge, because a job in a lane cannot wait for
/// another job.
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
