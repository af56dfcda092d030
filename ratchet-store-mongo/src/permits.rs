//! [`PermitStore`] on MongoDB, where there are transactions, and what enqueues and claims need of
//! permits.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::model::{ClaimRequest, PermitInfo};
use ratchet_core::permit::Budget;
use ratchet_core::store::{Changed, IfKnown, PermitStore};
use ratchet_core::{InvalidInput, JobId, JobState, Name, Priority, Result, Route, StoreErrorKind};

use crate::connection::Tx;
use crate::error::{Failure, Result as Inner};
use crate::pipelines::{self, code};
use crate::row;
use crate::store::{MongoStore, pause};

/// How often a claim that met others at the permits it needs tries again.
const TRIES: u32 = 30;

/// A change that is repeated because its answer was lost says `Unchanged` of what it changed itself the
/// first time, as that of a queue does.
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
    /// Whoever claims by the old number at this moment meets this write, and begins again.
    /// [permit.change]
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
                    // Somebody else sets it at the same time.
                    _ => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        }
    }

    /// [permit.list]
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

    /// Refuses routes that need a permit of a resource that was never set. [permit.unknown]
    pub(crate) async fn require_permits(&self, routes: &[&Route]) -> Inner<()> {
        // A route that is stored was checked then, and no resource is ever deleted.
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

    /// What is left of the permits that jobs of these routes need, by what can be seen without a
    /// lock: whoever takes a permit looks again.
    pub(crate) async fn rest_of_permits(&self, routes: &[(i32, Route)]) -> Inner<Budget> {
        let side = self.main();
        let names = resources(routes.iter().map(|(_, route)| route));
        self.budget(&mut side.plain(), &names).await
    }

    /// Takes those of the chosen jobs, all of which need permits, for which there are some, in this
    /// order; how many.
    ///
    /// Nobody else can take a permit of the same resources meanwhile: each claim writes to their
    /// documents, so of two at the same time one begins again. What it counts afterwards, in its
    /// snapshot, can only become less. [permit.max]
    pub(crate) async fn take_permitted(
        &self,
        request: &ClaimRequest,
        chosen: &[(JobId, Priority, Route)],
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
        chosen: &[(JobId, Priority, Route)],
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
        let admitted: Vec<_> = admitted.map(|(id, level, _)| (*id, *level)).collect();
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

    /// How many running jobs hold a permit of each of these resources. Index `held`, which has all
    /// that is asked for: as many entries as are held.
    async fn holders(&self, on: &mut Tx<'_>, names: &[String]) -> Inner<BTreeMap<Name, u64>> {
        let side = self.main();
        let running = doc! { "state": code(JobState::Running), "permit": { "$in": names } };
        let stages = vec![
            doc! { "$match": running },
            doc! { "$group": { "_id": "$permit", "held": { "$sum": 1_i64 } } },
        ];
        // What was freed a moment ago is free, whether or not a majority knows it: who ended the job
        // was told so.
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

/// The resources whose permits jobs of these routes need, each once.
fn resources<'a>(routes: impl Iterator<Item = &'a Route>) -> Vec<String> {
    let names: BTreeSet<&Name> = routes.filter_map(|route| route.permit.as_ref()).collect();
    names.iter().map(ToString::to_string).collect()
}

/// The resources of these documents, with their holders.
fn infos(rows: &[RawDocumentBuf], held: &BTreeMap<Name, u64>) -> Inner<Vec<PermitInfo>> {
    let info = |row: &RawDocumentBuf| {
        let resource = row::name(row, "_id")?;
        let resource = resource.ok_or_else(|| InvalidInput::new("_id", "is missing"))?;
        let held = held.get(&resource).copied().unwrap_or(0);
        Ok(PermitInfo::new(resource, row::count(row, "max")?, held))
    };
    rows.iter().map(info).collect()
}
