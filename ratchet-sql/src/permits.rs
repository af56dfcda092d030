//! [`PermitStore`] on SQL, and the permit checks of claims.

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;
use ratchet_core::model::PermitInfo;
use ratchet_core::permit::Budget;
use ratchet_core::store::{Changed, IfKnown, PermitStore};
use ratchet_core::{InvalidInput, JobId, Name, Result};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::Result as Inner;
use crate::routes::Chosen;
use crate::row;
use crate::store::SqlStore;

/// If the reply to a call is lost, the store repeats the call. The repeated call returns
/// `Unchanged`, even if the first call made the change.
#[async_trait]
impl<D: Dialect> PermitStore for SqlStore<D> {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        self.call("set_permits", || async {
            let set = self.sql().set_permits.query();
            let (max, keep) = (i64::from(max), if_known == IfKnown::Keep);
            let set = set.bind(resource.as_str()).bind(max).bind(keep);
            Ok(Changed::when(self.lease().await?.changed(set).await? > 0))
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.call("permits", || async {
            let mut lease = self.lease().await?;
            self.held_permits(&mut lease, None).await
        })
        .await
    }
}

impl<D: Dialect> SqlStore<D> {
    /// Returns the limit and the number of held permits of each resource in `resources`, or of
    /// every resource if `resources` is `None`.
    async fn held_permits(
        &self,
        lease: &mut D::Lease,
        resources: Option<&[String]>,
    ) -> Inner<Vec<PermitInfo>> {
        let held = self.sql().held_permits.query();
        let held = held.bind(resources.unwrap_or_default());
        let held = held.bind(resources.is_none());
        let mut permits = Vec::new();
        for row in lease.rows(held).await? {
            let resource = row::name(&row, 0, "resource")?;
            permits.push(PermitInfo::new(
                resource.ok_or_else(|| InvalidInput::new("resource", "is missing"))?,
                row::count(row.try_get::<i64>(1)?, "max_held")?,
                row::count(row.try_get::<i64>(2)?, "held")?,
            ));
        }
        // Sort in byte order here, because not every server does.
        permits.sort_by(|one: &PermitInfo, other| one.resource.cmp(&other.resource));
        Ok(permits)
    }

    /// Removes from `chosen` the routes that need a permit but cannot be claimed now: no permit is
    /// free, or no job is due. The claim then does not lock the permits of these routes.
    pub(crate) async fn leave_used_up_out(
        &self,
        lease: &mut D::Lease,
        chosen: &mut Chosen,
    ) -> Inner<()> {
        let ids = chosen.routes.iter();
        let ids = ids.filter(|(_, route)| route.permit.is_some());
        let ids: Vec<i32> = ids.map(|(id, _)| *id).collect();
        let look = self.sql().look_at_permits.query().bind(&ids);
        let mut found = HashSet::new();
        for row in lease.rows(look).await? {
            found.insert(row.try_get::<i32>(0)?);
        }
        chosen
            .routes
            .retain(|(id, route)| route.permit.is_none() || found.contains(id));
        Ok(())
    }

    /// Locks the permits that the routes in `chosen` need. The locks last until the transaction
    /// ends. Returns the number of free permits of each resource. Removes from `chosen` the routes
    /// that have no free permit.
    pub(crate) async fn lock_permits(
        &self,
        lease: &mut D::Lease,
        chosen: &mut Chosen,
    ) -> Inner<Budget> {
        let resources = chosen.routes.iter();
        let resources = resources.filter_map(|(_, route)| route.permit.as_ref());
        let resources: BTreeSet<&Name> = resources.collect();
        let resources: Vec<String> = resources.iter().map(ToString::to_string).collect();
        let lock = self.sql().lock_permits.query().bind(&resources);
        lease.execute(lock).await?;
        // This statement runs after the lock was acquired. So it sees the claims of transactions
        // that held the lock before.
        let budget = Budget::new(self.held_permits(lease, Some(&resources)).await?);
        chosen
            .routes
            .retain(|(_, route)| budget.rest(route) != Some(0));
        Ok(budget)
    }

    /// Undoes the claims of these jobs, which the current transaction has made.
    pub(crate) async fn unclaim(&self, lease: &mut D::Lease, jobs: &[JobId]) -> Inner<()> {
        let ids: Vec<Uuid> = jobs.iter().map(|job| job.as_uuid()).collect();
        let unclaim = self.sql().unclaim_jobs.query().bind(&ids);
        lease.execute(unclaim).await.map(|_| ())
    }
}
