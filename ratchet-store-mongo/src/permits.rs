//! [`PermitStore`] on MongoDB servers with transactions, and the use of permits by enqueues and
//! claims. A claim uses the places of fair keys in the same transactions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;

use async_trait::async_trait;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::fair::{self, Places};
use ratchet_core::model::{ClaimRequest, PermitInfo};
use ratchet_core::permit::Budget;
use ratchet_core::priority::Choice;
use ratchet_core::store::{Changed, IfKnown, PermitStore};
use ratchet_core::{InvalidInput, JobId, JobState, Name, Result, Route, StoreErrorKind};

use crate::bulk::Statement;
use crate::connection::Tx;
use crate::division::Division;
use crate::error::{Failure, Result as Inner};
use crate::pipelines::{self, Seen, code};
use crate::row;
use crate::store::{MongoStore, pause};

/// Maximum number of retries after a claim conflicts with another call about the permits of a
/// resource or the limits of a fair key.
const TRIES: u32 = 30;

/// The jobs that a claim has admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admitted {
    /// Number of claimed jobs.
    pub(crate) taken: usize,
    /// Number of parked jobs.
    pub(crate) parked: usize,
}

/// A job in turn that a claim may take or park.
struct InTurn {
    key: Option<Name>,
    run_at: i64,
}

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

    /// Claims up to `limit` of the chosen jobs that have free permits and free places of their fair
    /// keys, in the given order. Parks the jobs before the last one of keys without a free place.
    /// [permit.max] [fair.limit.max]
    ///
    /// Each transaction writes to the documents of its resources and of the limits of its keys. So
    /// two concurrent claims that need the same one conflict, and one of them is retried.
    /// Therefore, no other claim can take a permit or a place before this claim commits. Jobs that
    /// another transaction has locked are left out.
    pub(crate) async fn take_checked(
        &self,
        request: &ClaimRequest,
        chosen: &[(JobId, Seen, Route)],
        limit: usize,
        at: (ObjectId, i64),
    ) -> Inner<Admitted> {
        let mut all = Admitted::default();
        let mut division = Division::new(chosen, 0);
        let mut tries = 0;
        while let Some(some) = division.next() {
            if all.taken == limit {
                break;
            }
            let mut tx = self.main().begin().await?;
            let mut writes_jobs = false;
            let wanted = (request, limit - all.taken);
            let taken = self.take_inside(&mut tx, wanted, some, at, &mut writes_jobs);
            let taken = taken.await;
            match tx.finish(taken).await {
                Ok(admitted) => {
                    all.taken += admitted.taken;
                    all.parked += admitted.parked;
                }
                Err(failure) if failure.kind != StoreErrorKind::Contention => return Err(failure),
                Err(_) if writes_jobs => division.locked(some),
                Err(failure) if tries == TRIES => return Err(failure),
                Err(_) => {
                    tries += 1;
                    division.again(some);
                    tokio::time::sleep(pause(tries)).await;
                }
            }
        }
        Ok(all)
    }

    async fn take_inside(
        &self,
        tx: &mut Tx<'_>,
        (request, limit): (&ClaimRequest, usize),
        chosen: &[(JobId, Seen, Route)],
        (call, now): (ObjectId, i64),
        writes_jobs: &mut bool,
    ) -> Inner<Admitted> {
        let side = self.main();
        let mut budget = Budget::default();
        let names = resources(chosen.iter().map(|(_, _, route)| route));
        if !names.is_empty() {
            let meet = doc! { "$inc": { "claims": 1_i64 } };
            let these = doc! { "_id": { "$in": &names } };
            tx.update_many(&side.permits, these, meet).await?;
            budget = self.budget(tx, &names).await?;
        }
        let turned = self.still_in_turn(tx, chosen, now).await?;
        let keys = chosen.iter().filter_map(|(id, _, route)| {
            let key = turned.get(id)?.key.clone()?;
            Some((route.queue.clone(), key))
        });
        let counted = self.count_keys(tx, &keys.collect()).await?;
        let mut places = Places::new(budget);
        let mut admitted = Vec::new();
        for (id, seen, route) in chosen {
            if admitted.len() == limit {
                break;
            }
            let key = match (seen.has_turn, turned.get(id)) {
                (true, None) => continue,
                (_, turned) => turned.and_then(|turned| turned.key.as_ref()),
            };
            let free = || {
                let free = key.and_then(|key| counted.free(&route.queue, key));
                Ok::<_, Infallible>(free)
            };
            let Ok(choice) = places.admit(*id, route, key, free);
            if choice == Choice::Take {
                admitted.push((*id, *seen));
            }
        }
        *writes_jobs = true;
        let (limited, others): (Vec<_>, Vec<_>) = admitted
            .into_iter()
            .partition(|(id, _)| places.is_limited(*id));
        let takes = [(limited, true), (others, false)].into_iter();
        let takes = takes.filter(|(jobs, _)| !jobs.is_empty());
        let takes = takes.map(|(jobs, limited)| {
            let take = pipelines::take(request.node, call, now, limited);
            doc! { "q": pipelines::takeable(&jobs, now), "u": take, "multi": true, "hint": "_id_" }
        });
        let taken = tx.updates(&side.jobs, takes.collect()).await?;
        let taken = usize::try_from(taken).unwrap_or(limit);
        let park = places.parked().iter().filter_map(|id| {
            let turn = fair::parked(turned.get(id)?.run_at);
            let this = doc! { "_id": row::id(*id) };
            Some(Statement::new(
                this,
                vec![doc! { "$set": { "turn": turn } }],
            ))
        });
        tx.bulk(&side.jobs, park.collect()).await?;
        let parked = places.parked().len();
        Ok(Admitted { taken, parked })
    }

    /// Returns those of the jobs with a turn that can still be claimed. Only these may use a place:
    /// a job that is parked instead of one that another call has changed would be overlooked.
    async fn still_in_turn(
        &self,
        tx: &mut Tx<'_>,
        chosen: &[(JobId, Seen, Route)],
        now: i64,
    ) -> Inner<HashMap<JobId, InTurn>> {
        let with_turn = chosen.iter().filter(|(_, seen, _)| seen.has_turn);
        let with_turn: Vec<_> = with_turn.map(|(id, seen, _)| (*id, *seen)).collect();
        if with_turn.is_empty() {
            return Ok(HashMap::new());
        }
        let only = row::fields(doc! { "fair_key": 1, "run_at": 1 });
        let still = pipelines::takeable(&with_turn, now);
        let mut found = HashMap::with_capacity(with_turn.len());
        for row in tx.find(&self.main().jobs, still, only).await? {
            let job = InTurn {
                // A job that cannot be read is claimed, and then fails.
                key: row::name(&row, "fair_key").ok().flatten(),
                run_at: row::int(&row, "run_at").unwrap_or_default(),
            };
            found.insert(row::job_id(&row, "_id")?, job);
        }
        Ok(found)
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
