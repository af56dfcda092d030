//! [`FairStore`] on MongoDB servers with transactions: limits of fair keys, and freed entries.
//!
//! **The field `limited`** of a job's document is true if the job was claimed while its key had a
//! limit, and no write of an end removes it. So while the job runs, it counts as a running job of
//! its key. After the claim has ended, the field is the freed entry of the key, stored by whatever
//! write has ended the claim. Ends of claims need no further statement, transaction or lock. A
//! write that takes a turn away sets the field too ([`left_by`](crate::freed::left_by)). The index [`INDEX`] has the jobs
//! with the field, so plain jobs have no entry. The collection `freed` has the entries of which no
//! job is left, of changed limits, and of keys with more jobs to wake.
//!
//! A claim may take a job again before its entry was read. Then the job takes up the place that the
//! entry stands for, so the entry is not needed: the job runs as it did before, and all other
//! events have entries of their own.
//!
//! **Transactions** write to the documents that must not change until they commit. Their reads see
//! one point in time. So if another transaction has changed such a document after it, the server
//! ends the later one, which is then repeated.
//!
//! | | limits of its keys | routes | version |
//! |---|---|---|---|
//! | a claim takes and parks jobs of keys with limits | writes | reads | |
//! | a claim reads freed entries and gives turns | writes | writes | |
//! | an enqueue or a claim gives turns to due jobs | | writes | |
//! | a limit changes | writes | writes | writes |
//!
//! A transaction that uses the limits of a key writes to all of them, whichever applies: that of
//! the key, of the queue, and of the patterns. A call that changes a limit writes to those that it
//! replaces, so it conflicts with all transactions that used one of them.
//!
//! **A key without a limit** has nothing to write to, and its jobs are taken as if there were no
//! limits. So after a claim has taken jobs with a fair key, it reads the version of the limits
//! again. If a limit has changed since the claim began, it gives back the jobs without the field
//! `limited`. A call that sets a limit commits the limit first, and then sets the field of all
//! running jobs of its scope. So when it returns, no claim can return a job that does not count.

use std::collections::{BTreeSet, HashMap};

use async_trait::async_trait;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, ReadConcern};
use ratchet_core::fair::places_for;
use ratchet_core::model::{FairLimit, FairLimits, FairScope};
use ratchet_core::store::{Changed, FairStore};
use ratchet_core::{InvalidInput, JobState, Name, Result};

use crate::connection::{Side, Tx};
use crate::error::Result as Inner;
use crate::fair;
use crate::freed::{Freed, left};
use crate::pipelines::code;
use crate::row;
use crate::store::MongoStore;

/// The field of a job that counts for a limit, or that is a freed entry.
pub(crate) const LIMITED: &str = "limited";
/// The name of the index of the jobs with the field [`LIMITED`].
pub(crate) const INDEX: &str = "limited";
/// Field of the document that [`noticed`] adds if there are freed entries.
pub(crate) const FREED: &str = "freed";

/// The field of the document `ratchet` in the collection `meta` that has the number of changes of
/// limits. It is missing if no limit was ever set.
pub(crate) const VERSION: &str = "limits";

/// A queue and a fair key.
pub(crate) type Key = (Name, Name);

/// Returns an expression for the version of the limits, in a stage that reads `meta`.
pub(crate) fn version() -> Document {
    doc! { "$ifNull": [format!("${VERSION}"), 0_i64] }
}

/// Returns the stage that adds a document with the field `limits` to the result, which has the
/// version of the limits.
pub(crate) fn current_version(meta: &str) -> Document {
    doc! { "$unionWith": { "coll": meta, "pipeline": [
        { "$match": { "_id": "ratchet" } },
        { "$project": { "_id": 0, "limits": version() } },
    ] } }
}

/// Returns the stages that look for limits and freed entries of these routes, and add a document
/// with the field [`LIMITED`] or [`FREED`] to the result if there are any.
pub(crate) fn noticed(side: &Side, routes: &[(i32, Name)]) -> Vec<Document> {
    let queues: BTreeSet<&Name> = routes.iter().map(|(_, queue)| queue).collect();
    let scopes: BTreeSet<String> = queues.into_iter().flat_map(scopes_of).collect();
    let scopes: Vec<String> = scopes.into_iter().collect();
    let routes: Vec<i32> = routes.iter().map(|(route, _)| *route).collect();
    let any = |coll: &str, wanted: Document, name: &str| {
        doc! { "$unionWith": { "coll": coll, "pipeline": [
            { "$match": wanted },
            { "$limit": 1 },
            { "$project": { "_id": 0, name: { "$literal": true } } },
        ] } }
    };
    vec![
        any(
            side.fair_limits.name(),
            doc! { "_id.queue": { "$in": scopes } },
            LIMITED,
        ),
        any(
            side.freed.name(),
            doc! { "route": { "$in": &routes } },
            FREED,
        ),
        any(side.jobs.name(), left(&routes), FREED),
    ]
}

/// Returns the texts of the queue and of all patterns that have it.
fn scopes_of(queue: &Name) -> Vec<String> {
    let text = queue.as_str();
    let mut scopes = patterns(text, text.len());
    scopes.push(text.to_owned());
    scopes
}

/// Returns the patterns whose prefixes are those of this text, up to this length.
fn patterns(text: &str, longest: usize) -> Vec<String> {
    let prefixes = (0..=longest).filter_map(|end| text.get(..end));
    prefixes.map(|prefix| format!("{prefix}*")).collect()
}

/// Returns the `_id` of a limit. An empty key means all keys.
fn limit_id(queues: &str, key: &str) -> Bson {
    doc! { "queue": queues, "key": key }.into()
}

/// Returns the ids of the limits that apply to the scope if it has no limit of its own.
fn replaced_by(scope: &FairScope) -> Vec<Bson> {
    let queues = scope.queue().as_str();
    let mut all = match scope.prefix() {
        // An empty prefix has no shorter one.
        Some("") => Vec::new(),
        Some(prefix) => patterns(prefix, prefix.len() - 1),
        None => patterns(queues, queues.len()),
    };
    if scope.fair_key().is_some() {
        all.push(queues.to_owned());
    }
    all.iter().map(|queues| limit_id(queues, "")).collect()
}

/// Returns the ids of all limits that may apply to these keys. Most of them are not stored.
fn limits_of(keys: &BTreeSet<Key>) -> Vec<Bson> {
    let queues: BTreeSet<&Name> = keys.iter().map(|(queue, _)| queue).collect();
    let scopes: BTreeSet<String> = queues.into_iter().flat_map(scopes_of).collect();
    let of_queues = scopes.iter().map(|queues| limit_id(queues, ""));
    let of_keys = keys
        .iter()
        .map(|(queue, key)| limit_id(queue.as_str(), key.as_str()));
    of_queues.chain(of_keys).collect()
}

fn limit(row: &RawDocument) -> std::result::Result<FairLimit, InvalidInput> {
    let id = row.get_document("_id");
    let id = id.map_err(|_| InvalidInput::new("_id", "is not a document"))?;
    let queues = row::text(id, "queue")?.unwrap_or_default();
    let key = row::text(id, "key")?.unwrap_or_default();
    let scope = FairScope::from_stored(queues, key)?;
    Ok(FairLimit::new(scope, row::count(row, "max")?))
}

fn limits(rows: &[RawDocumentBuf]) -> FairLimits {
    let limit = |row: &RawDocumentBuf| {
        limit(row)
            .inspect_err(|error| tracing::warn!(%error, "skipped a limit that cannot be read"))
            .ok()
    };
    rows.iter().filter_map(limit).collect()
}

/// The limits and the running jobs of some keys. The transaction has locked the limits.
#[derive(Default)]
pub(crate) struct Counted {
    limits: FairLimits,
    running: HashMap<Key, u64>,
}

impl Counted {
    /// Returns how many more jobs of a key may run. `None` if the key has no limit.
    pub(crate) fn free(&self, queue: &Name, key: &Name) -> Option<u64> {
        let (max, running) = self.of(&(queue.clone(), key.clone()));
        max.map(|max| places_for(Some(max), running, 0))
    }

    /// Returns the limit and the number of running jobs of a key.
    pub(crate) fn of(&self, key: &Key) -> (Option<u32>, u64) {
        let running = self.running.get(key).copied().unwrap_or(0);
        (self.limits.of(&key.0, &key.1), running)
    }
}

/// Calls that change a limit are not repeated if their reply is lost.
#[async_trait]
impl FairStore for MongoStore {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        self.call_once("set_fair_limit", || self.change_limit(scope, max))
            .await
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        self.call("fair_limits", || async {
            let side = self.main();
            let mut on = side.plain();
            let all = on.find(&side.fair_limits, doc! {}, FindOptions::default());
            Ok(limits(&all.await?).into_list())
        })
        .await
    }
}

impl MongoStore {
    /// Sets or removes a limit. Then sets the field [`LIMITED`] of the running jobs of its scope,
    /// also if the limit is the same: an earlier call may have failed before it could.
    async fn change_limit(&self, scope: &FairScope, max: Option<u32>) -> Inner<Changed> {
        let side = self.main();
        let mut tx = side.begin().await?;
        let changed = self.change_limit_inside(&mut tx, scope, max).await;
        let changed = tx.finish(changed).await?;
        if max.is_some() {
            self.limit_running(scope).await?;
        }
        Ok(changed)
    }

    async fn change_limit_inside(
        &self,
        tx: &mut Tx<'_>,
        scope: &FairScope,
        max: Option<u32>,
    ) -> Inner<Changed> {
        let side = self.main();
        let this = doc! { "_id": limit_id(scope.queue().as_str(), scope.key_text()) };
        let stored = tx.find_one(&side.fair_limits, this.clone()).await?;
        let unchanged = match (&stored, max) {
            (Some(stored), Some(max)) => row::int(stored, "max") == Ok(max.into()),
            (stored, max) => stored.is_none() && max.is_none(),
        };
        if unchanged {
            return Ok(Changed::Unchanged);
        }
        let meta = doc! { "_id": "ratchet" };
        let change = doc! { "$inc": { VERSION: 1_i64 } };
        tx.update_one(&side.meta, meta, change).await?;
        let replaced = doc! { "_id": { "$in": replaced_by(scope) } };
        tx.update_many(
            &side.fair_limits,
            replaced,
            doc! { "$inc": { "uses": 1_i64 } },
        )
        .await?;
        match max {
            Some(max) => {
                let set = doc! { "$set": { "max": i64::from(max) } };
                tx.change(&side.fair_limits, this, set, true).await?;
            }
            None => drop(tx.delete_many(&side.fair_limits, this).await?),
        }
        let routes = self.fair_routes(tx, doc! {}).await?;
        let routes = routes.iter().filter(|(_, queue)| scope.has_queue(queue));
        let routes: Vec<i32> = routes.map(|(route, _)| *route).collect();
        // An enqueue may be about to park a job behind one that is no longer parked.
        self.lock_routes(tx, doc! { "_id": { "$in": &routes } })
            .await?;
        let mut parked = doc! {
            "state": code(JobState::Pending),
            "route": { "$in": routes },
            "priority": { "$in": [0, 1, 2, 3, 4] },
            "turn": fair::parked(),
        };
        if let Some(key) = scope.fair_key() {
            parked.insert("fair_key", key.as_str());
        }
        let stages = vec![
            doc! { "$match": parked },
            doc! { "$group": { "_id": { "route": "$route", "fair_key": "$fair_key" } } },
            doc! { "$replaceWith": "$_id" },
        ];
        let concern = ReadConcern::majority();
        let rows = tx.aggregate(&side.jobs, stages, concern).await?;
        let freed: Vec<Freed> = rows
            .iter()
            .filter_map(|row| Freed::read(row).ok())
            .collect();
        self.store_freed(tx, &freed).await?;
        Ok(Changed::Changed)
    }

    /// Sets the field [`LIMITED`] of the running jobs of this scope. Reads all running jobs.
    async fn limit_running(&self, scope: &FairScope) -> Inner<()> {
        let side = self.main();
        self.routes().refresh(side).await?;
        let routes = self.routes().fair_of(|queue| scope.has_queue(queue));
        let routes: Vec<i32> = routes.into_iter().map(|(route, _)| route).collect();
        if routes.is_empty() {
            return Ok(());
        }
        let mut running = doc! {
            "state": code(JobState::Running),
            "route": { "$in": routes },
            LIMITED: Bson::Null,
        };
        if let Some(key) = scope.fair_key() {
            running.insert("fair_key", key.as_str());
        }
        let set = doc! { "$set": { LIMITED: true } };
        let update = doc! { "q": running, "u": set, "multi": true, "hint": "running" };
        side.plain().updates(&side.jobs, vec![update]).await?;
        Ok(())
    }

    /// Returns the routes of jobs with a fair key, with their queues, as the transaction sees them.
    pub(crate) async fn fair_routes(
        &self,
        tx: &mut Tx<'_>,
        these: Document,
    ) -> Inner<Vec<(i32, Name)>> {
        let mut these = these;
        these.insert("fair", true);
        let only = row::fields(doc! { "queue": 1 });
        let mut routes = Vec::new();
        for row in tx.find(&self.main().routes, these, only).await? {
            if let Ok(Some(queue)) = row::name(&row, "queue") {
                routes.push((row::count(&row, "_id")?, queue));
            }
        }
        Ok(routes)
    }

    /// Locks the limits of these keys, and counts the running jobs of those that have one.
    /// [fair.limit.max]
    pub(crate) async fn count_keys(&self, tx: &mut Tx<'_>, keys: &BTreeSet<Key>) -> Inner<Counted> {
        let side = self.main();
        let mut counted = Counted::default();
        if keys.is_empty() {
            return Ok(counted);
        }
        let these = doc! { "_id": { "$in": limits_of(keys) } };
        let meet = doc! { "$inc": { "uses": 1_i64 } };
        let met = tx.update_many(&side.fair_limits, these.clone(), meet);
        if met.await? == 0 {
            return Ok(counted);
        }
        let rows = tx.find(&side.fair_limits, these, FindOptions::default());
        counted.limits = limits(&rows.await?);
        let limited = |(queue, key): &&Key| counted.limits.of(queue, key).is_some();
        let limited: Vec<&Key> = keys.iter().filter(limited).collect();
        if limited.is_empty() {
            return Ok(counted);
        }
        let of_queues: BTreeSet<&str> = limited.iter().map(|(queue, _)| queue.as_str()).collect();
        let of_queues: Vec<&str> = of_queues.into_iter().collect();
        let of_queues = doc! { "queue": { "$in": of_queues } };
        let queues = self.fair_routes(tx, of_queues).await?;
        let queues: HashMap<i32, Name> = queues.into_iter().collect();
        let routes: Vec<i32> = queues.keys().copied().collect();
        let names: BTreeSet<&str> = limited.iter().map(|(_, key)| key.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let running = doc! {
            LIMITED: true,
            "state": code(JobState::Running),
            "route": { "$in": routes },
            "fair_key": { "$in": names },
        };
        let of_key = doc! { "route": "$route", "fair_key": "$fair_key" };
        let stages = vec![
            doc! { "$match": running },
            doc! { "$group": { "_id": of_key, "running": { "$sum": 1_i64 } } },
            doc! { "$set": { "route": "$_id.route", "fair_key": "$_id.fair_key" } },
        ];
        let concern = ReadConcern::local();
        let rows = tx.aggregate_by(&side.jobs, stages, concern, Some(INDEX));
        for row in rows.await? {
            let queue = queues.get(&row::count(&row, "route")?);
            if let (Some(queue), Some(key)) = (queue, row::name(&row, "fair_key")?) {
                let running = counted.running.entry((queue.clone(), key)).or_default();
                *running += row::count::<u64>(&row, "running")?;
            }
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new("name", text).unwrap()
    }

    #[test]
    fn a_limit_replaces_those_of_larger_scopes() {
        for (scope, expected) in [
            (FairScope::key("ab", "k"), &["*", "a*", "ab*", "ab"][..]),
            (FairScope::queues("ab"), &["*", "a*", "ab*"]),
            (FairScope::queues("ab*"), &["*", "a*"]),
            (FairScope::queues("*"), &[]),
            (FairScope::queues("aé"), &["*", "a*", "aé*"]),
        ] {
            let expected: Vec<Bson> = expected.iter().map(|one| limit_id(one, "")).collect();
            assert_eq!(replaced_by(&scope.unwrap()), expected);
        }
    }

    #[test]
    fn a_key_has_the_limits_of_all_scopes_that_have_it() {
        let keys = BTreeSet::from([(name("a"), name("k")), (name("a"), name("l"))]);
        let of_queues = ["*", "a", "a*"].map(|queues| limit_id(queues, ""));
        let of_keys = ["k", "l"].map(|key| limit_id("a", key));
        assert_eq!(limits_of(&keys), [&of_queues[..], &of_keys].concat());
    }
}
