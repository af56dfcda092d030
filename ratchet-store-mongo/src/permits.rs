//! [`PermitStore`] on MongoDB servers with transactions, and the use of permits by enqueues and
//! claims.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::model::{ClaimRequest, PermitInfo};
use ratchet_core::permit::Budget;
use ratchet_core::store::{Changed, IfKnown, PermitStore};
use ratchet_core::{InvalidInput, JobId, JobState, Name, Result, Route, StoreErrorKind};

use crate::connection::Tx;
use crate::error::{Failure, Result as Inner};
use crate::pipelines::{self, Seen, code};
use crate::row;
use crate::store::{MongoStore, pause};

/// Maximum number of retries after a claim conflicts with another call about the permits of a
/// resource.
const TRIES: u32 = 30;

/// Permits. Calls that change a limit are repeated if their reply is lost. The repeated call then
/// returns `Unchanged`, although the first try changed the limit.
#[async_trait]
impl PermitStore for MongoStore {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        let max = i64::from(max);
        self.call("set_permits", || {
            self.change_permits(resource, max, if_known)
        })
        .await
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.call("permits", || self.list_permits()).await
    }
}

impl MongoStore {
    /// Sets the number of permits of a resource. A concurrent claim that has read the old number
    /// conflicts with this write and is retried. [permit.change]
    async fn change_permits(&self, resource: &Name, max: i64, if_known: IfKnown) -> Inner<Changed> {
        let side = self.main();
        let mut on = side.plain();
        let other = doc! { "_id": resource.as_str(), "max": { "$ne": max } };
        let set = doc! { "$set": { "max": max } };
        let keep = if_known == IfKnown::Keep;
        if !keep && on.update_one(&side.permits, other, set).await? > 0 {
            return Ok(Changed::Changed);
        }
        let new = doc! { "_id": resource.as_str(), "max": max, "claims": 0_i64 };
        let new = RawDocumentBuf::try_from(&new)?;
        match on.insert_many(&side.permits, &[new]).await {
            Ok(()) => Ok(Changed::Changed),
            Err(failure) if failure.is_duplicate() && keep => Ok(Changed::Unchanged),
            Err(failure) if failure.is_duplicate() => {
                let this = doc! { "_id": resource.as_str() };
                match on.find_one(&side.permits, this).await? {
                    Some(row) if row::int(&row, "max")? == max => Ok(Changed::Unchanged),
                    // Another call is changing the number at the same time.
                    _ => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns all resources, each with its limit and the number of permits in use. [permit.list]
    async fn list_permits(&self) -> Inner<Vec<PermitInfo>> {
        let side = self.main();
        let mut on = side.plain();
        let options = FindOptions::builder().sort(doc! { "_id": 1 }).build();
        let rows = on.find(&side.permits, doc! {}, options).await?;
        let names = rows.iter().map(|row| row::text(row, "_id"));
        let names = names.filter_map(|name| Some(name.ok()??.to_owned()));
        let names: Vec<String> = names.collect();
        infos(&rows, &self.holders(&mut on, &names).await?)
    }

    /// Fails if a route needs a permit of a resource whose limit was never set. [permit.unknown]
    pub(crate) async fn require_permits(&self, routes: &[&Route]) -> Inner<()> {
        // Skip the known routes: each was checked when it was stored, and resources are never
        // deleted.
        self.routes().check(self.live()).await?;
        let unknown = routes.iter().filter(|route| !self.routes().is_known(route));
        let wanted: Vec<&Name> = unknown.filter_map(|route| route.permit.as_ref()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let side = self.main();
        let names: Vec<&str> = wanted.iter().map(|resource| resource.as_str()).collect();
        let set = doc! { "_id": { "$in": names } };
        let only = row::fields(doc! { "_id": 1 });
        let mut known = Vec::new();
        for row in side.plain().find(&side.permits, set, only).await? {
            known.extend(row::name(&row, "_id")?);
        }
        let unknown = wanted.into_iter().find(|name| !known.contains(name));
        unknown.map_or(Ok(()), |name| {
            Err(Failure::refused(InvalidInput::unknown_permit(name)))
        })
    }

    /// Returns the number of free permits for jobs of these routes. The result may be outdated
    /// immediately, because nothing is locked. So a claim that uses a permit counts the free
    /// permits again.
    pub(crate) async fn rest_of_permits(&self, routes: &[(i32, Route)]) -> Inner<Budget> {
        let side = self.main();
        let names = resources(routes.iter().map(|(_, route)| route));
        self.budget(&mut side.plain(), &names).await
    }

    /// Claims as many of the chosen jobs as have free permits, in the given order. Returns the
    /// number of claimed jobs. Every chosen job must need a permit.
    ///
    /// Each claim writes to the documents of its resources. So two concurrent claims that need the
    /// same resource conflict, and one of them is retried. Therefore, no other claim can take a
    /// permit of these resources before this claim commits. [permit.max]
    pub(crate) async fn take_permitted(
        &self,
        request: &ClaimRequest,
        chosen: &[(JobId, Seen, Route)],
        call: ObjectId,
        now: i64,
    ) -> Inner<u64> {
        if chosen.is_empty() {
            return Ok(0);
        }
        let mut tries = 0;
        loop {
            let mut tx = self.main().begin().await?;
            let taken = self.take_inside(&mut tx, request, chosen, call, now).await;
            match tx.finish(taken).await {
                Err(failure) if failure.kind == StoreErrorKind::Contention && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(pause(tries)).await;
                }
                taken => return taken,
            }
        }
    }

    async fn take_inside(
        &self,
        tx: &mut Tx<'_>,
        request: &ClaimRequest,
        chosen: &[(JobId, Seen, Route)],
        call: ObjectId,
        now: i64,
    ) -> Inner<u64> {
        let side = self.main();
        let names = resources(chosen.iter().map(|(_, _, route)| route));
        let meet = doc! { "$inc": { "claims": 1_i64 } };
        let these = doc! { "_id": { "$in": &names } };
        tx.update_many(&side.permits, these, meet).await?;
        let mut budget = self.budget(tx, &names).await?;
        let admitted = chosen.iter().filter(|(_, _, route)| budget.take(route));
        let admitted: Vec<_> = admitted.map(|(id, seen, _)| (*id, *seen)).collect();
        if admitted.is_empty() {
            return Ok(0);
        }
        let take = pipelines::take(request.node, call, now);
        let takeable = pipelines::takeable(&admitted, now);
        tx.update_these(&side.jobs, takeable, take).await
    }

    async fn budget(&self, on: &mut Tx<'_>, names: &[String]) -> Inner<Budget> {
        let side = self.main();
        let these = doc! { "_id": { "$in": names } };
        let rows = on
            .find(&side.permits, these, FindOptions::default())
            .await?;
        let held = self.holders(on, names).await?;
        Ok(Budget::new(infos(&rows, &held)?))
    }

    /// Counts the running jobs that hold a permit, for each of these resources. Index `held` covers
    /// the query, which reads one entry for each held permit.
    async fn holders(&self, on: &mut Tx<'_>, names: &[String]) -> Inner<BTreeMap<Name, u64>> {
        let side = self.main();
        let running = doc! { "state": code(JobState::Running), "permit": { "$in": names } };
        let stages = vec![
            doc! { "$match": running },
            doc! { "$group": { "_id": "$permit", "held": { "$sum": 1_i64 } } },
        ];
        // Reads with the concern `local`, because a permit is free as soon as its job has ended,
        // even if a majority does not have that change yet.
        let counted = on
            .aggregate_by(&side.jobs, stages, ReadConcern::local(), Some("held"))
            .await?;
        let mut held = BTreeMap::new();
        for row in counted {
            if let Some(resource) = row::name(&row, "_id")? {
                held.insert(resource, row::count(&row, "held")?);
            }
        }
        Ok(held)
    }
}

/// Returns the resources whose permits these routes need, without duplicates.
fn resources<'a>(routes: impl Iterator<Item = &'a Route>) -> Vec<String> {
    let names: BTreeSet<&Name> = routes.filter_map(|route| route.permit.as_ref()).collect();
    names.iter().map(ToString::to_string).collect()
}

/// Returns each resource with its limit and the number of permits in use. `held` contains the
/// numbers in use.
fn infos(rows: &[RawDocumentBuf], held: &BTreeMap<Name, u64>) -> Inner<Vec<PermitInfo>> {
    let info = |row: &RawDocumentBuf| {
        let resource = row::name(row, "_id")?;
        let resource = resource.ok_or_else(|| InvalidInput::new("_id", "is missing"))?;
        let held = held.get(&resource).copied().unwrap_or(0);
        Ok(PermitInfo::new(resource, row::count(row, "max")?, held))
    };
    rows.iter().map(info).collect()
}
