//! [`RecurringStore`] on MongoDB servers with transactions. A transaction reads a definition, the
//! core computes the new state, and the same transaction writes that state.

use async_trait::async_trait;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use mongodb::options::{FindOptions, Hint};
use ratchet_core::dictionary::Place;
use ratchet_core::model::{
    Definition, DueRecurring, Fired, Guarded, NewJob, PutOutcome, PutRecurring,
    RecurringClaimRequest, RecurringFiring, RecurringPage, RecurringRecord, RetireRecurring,
};
use ratchet_core::store::{Changed, RecurringStore};
use ratchet_core::time::{add, from_millis, millis_between, to_millis};
use ratchet_core::{Incarnation, InvalidInput, Name, Result};

use crate::connection::Tx;
use crate::error::{Failure, Result as Inner};
use crate::pipelines::LONGEST;
use crate::row;
use crate::store::MongoStore;

/// Recurring definitions. Calls that pause, resume or delete a definition are repeated if their
/// reply is lost. The repeated call then returns `Unchanged`, although the first try changed the
/// definition. A repeated firing returns `Stale`.
#[async_trait]
impl RecurringStore for MongoStore {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        self.call("put", || self.put_definition(put)).await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        self.call("find", || async {
            let found = self.find_definition(&mut self.main().plain(), name).await?;
            found.as_deref().map(record).transpose()
        })
        .await
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        self.call("definitions", || self.list_definitions(after, limit))
            .await
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        self.call("claim_due_recurring", || self.claim_definitions(request))
            .await
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        self.call("fire", || self.fire_definitions(firings)).await
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        self.call("set_paused", || async {
            let side = self.main();
            let now = self.millis(side).await?;
            let mut tx = side.begin().await?;
            let done = self.pause_inside(&mut tx, name, paused, now).await;
            tx.finish(done).await
        })
        .await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        self.call("delete", || async {
            let side = self.main();
            let this = doc! { "_id": name.as_str() };
            let gone = side.plain().delete_many(&side.recurring, this).await?;
            Ok(Changed::when(gone > 0))
        })
        .await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        self.call("retire", || async {
            let side = self.main();
            let guard = Some(&request.guard);
            let Some(mut guarded) = self.begin_guarded(side, guard).await? else {
                return Ok(Guarded::Stale);
            };
            let retired = self.retire_inside(&mut guarded.tx, request).await;
            guarded.finish(self, retired).await
        })
        .await
    }
}

/// The definitions that a call claims. `names` also includes definitions that cannot be read.
struct Due {
    names: Vec<Bson>,
    definitions: Vec<RecurringRecord>,
}

impl MongoStore {
    async fn put_definition(&self, put: &PutRecurring) -> Inner<PutOutcome> {
        // Permits are checked now, not when the jobs are created. [recurring.permit]
        self.require_permits(&[&put.definition.job().route]).await?;
        let side = self.main();
        let now = self.millis(side).await?;
        let mut tx = side.begin().await?;
        let outcome = self.put_inside(&mut tx, put, now).await;
        tx.finish(outcome).await
    }

    /// Creates or changes a definition inside the transaction. [recurring.create] [recurring.edit]
    async fn put_inside(&self, tx: &mut Tx<'_>, put: &PutRecurring, now: i64) -> Inner<PutOutcome> {
        let found = self.find_definition(tx, put.definition.name()).await?;
        let found = found.as_deref().map(record);
        let Some((record, outcome)) = put.apply(found, from_millis(now)) else {
            return Ok(PutOutcome::Unchanged);
        };
        self.keep_definition(tx, &record).await?;
        Ok(outcome)
    }

    /// Pauses or resumes a definition inside the transaction. [recurring.pause] [recurring.resume]
    async fn pause_inside(
        &self,
        tx: &mut Tx<'_>,
        name: &Name,
        paused: bool,
        now: i64,
    ) -> Inner<Changed> {
        let found = self.find_definition(tx, name).await?;
        let record = found.as_deref().map(record).transpose()?;
        match record.and_then(|record| record.with_pause(paused, from_millis(now))) {
            None => Ok(Changed::Unchanged),
            Some(other) => {
                self.keep_definition(tx, &other).await?;
                Ok(Changed::Changed)
            }
        }
    }

    /// Returns the document of the definition with this name, if it exists.
    async fn find_definition(&self, on: &mut Tx<'_>, name: &Name) -> Inner<Option<RawDocumentBuf>> {
        let this = doc! { "_id": name.as_str() };
        on.find_one(&self.main().recurring, this).await
    }

    /// Replaces the document of a definition by its new state. Creates the document if it does not
    /// exist.
    async fn keep_definition(&self, tx: &mut Tx<'_>, record: &RecurringRecord) -> Inner<()> {
        let this = doc! { "_id": record.definition.name().as_str() };
        let row = RawDocumentBuf::try_from(&document(record)?)?;
        tx.replace(&self.main().recurring, this, &row).await
    }

    /// Returns one page of the definitions, in order of name. [recurring.list]
    async fn list_definitions(&self, after: Option<&Name>, limit: usize) -> Inner<RecurringPage> {
        let side = self.main();
        // No name is empty, so every name sorts after "".
        let behind = doc! { "_id": { "$gt": after.map_or("", Name::as_str) } };
        let options = FindOptions::builder()
            .sort(doc! { "_id": 1 })
            // Reads one definition more than a page has, to know whether another page follows.
            .limit(i64::try_from(limit + 1).unwrap_or(i64::MAX))
            .build();
        let rows = side.plain().find(&side.recurring, behind, options).await?;
        Ok(RecurringPage::of(&rows, limit, |row| {
            (name_of(row), readable(row))
        }))
    }

    async fn claim_definitions(&self, request: &RecurringClaimRequest) -> Inner<DueRecurring> {
        let side = self.main();
        let now = self.millis(side).await?;
        let mut on = side.plain();
        if self.due_definitions(&mut on, now, 1).await?.is_empty() {
            let nothing = Due {
                names: Vec::new(),
                definitions: Vec::new(),
            };
            return self.answer(&mut on, now, nothing).await;
        }
        let mut tx = side.begin().await?;
        let claimed = async {
            let due = self.claim_inside(&mut tx, request, now).await?;
            self.answer(&mut tx, now, due).await
        }
        .await;
        tx.finish(claimed).await
    }

    /// Returns up to `limit` definitions that are due and that no node has claimed. Uses index
    /// `due`. [recurring.due]
    async fn due_definitions(
        &self,
        on: &mut Tx<'_>,
        now: i64,
        limit: usize,
    ) -> Inner<Vec<RawDocumentBuf>> {
        let due = doc! {
            "paused": false,
            "next_fire": { "$lte": now },
            "$or": [
                { "claimed_until": { "$exists": false } },
                { "claimed_until": { "$lte": now } },
            ],
        };
        let options = FindOptions::builder()
            .sort(doc! { "next_fire": 1, "_id": 1 })
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .hint(Hint::Name("due".to_owned()))
            .build();
        on.find(&self.main().recurring, due, options).await
    }

    /// Claims due definitions for the requesting node, inside the transaction. [recurring.claim]
    async fn claim_inside(
        &self,
        tx: &mut Tx<'_>,
        request: &RecurringClaimRequest,
        now: i64,
    ) -> Inner<Due> {
        let until = from_millis(to_millis(add(from_millis(now), request.lease)).min(LONGEST));
        let rows = self.due_definitions(tx, now, request.limit).await?;
        let mut due = Due {
            names: Vec::with_capacity(rows.len()),
            definitions: Vec::with_capacity(rows.len()),
        };
        for row in &rows {
            // Unreadable definitions are claimed too. Otherwise they would be the first due ones in
            // every call, and block the others.
            due.names
                .extend(row.get("_id")?.map(Bson::try_from).transpose()?);
            let record = readable(row);
            due.definitions
                .extend(record.map(|record| record.claimed(request.node, until)));
        }
        let these = doc! { "_id": { "$in": due.names.clone() } };
        let claim = doc! {
            "$inc": { "revision": 1_i64 },
            "$set": { "claimed_by": row::id(request.node), "claimed_until": to_millis(until) },
        };
        let matched = tx.update_many(&self.main().recurring, these, claim).await?;
        if usize::try_from(matched) != Ok(due.names.len()) {
            return Err(Failure::contention(
                "a concurrent call changed a definition",
            ));
        }
        Ok(due)
    }

    /// Returns the result of the call that has claimed the definitions in `due`. [recurring.clock]
    /// [recurring.hint]
    async fn answer(&self, on: &mut Tx<'_>, now: i64, due: Due) -> Inner<DueRecurring> {
        let unreadable = due.names.len() - due.definitions.len();
        let next = self.next_definition(on, due.names).await?;
        Ok(DueRecurring {
            now: from_millis(now),
            definitions: due.definitions,
            next_in: next.map(|next| millis_between(now, next)),
            unreadable,
        })
    }

    /// Returns the time at which another definition can next be claimed. Ignores the definitions in
    /// `taken`. Reads the first unclaimed definition with index `due`, and all claimed definitions
    /// with index `claimed`.
    async fn next_definition(&self, on: &mut Tx<'_>, taken: Vec<Bson>) -> Inner<Option<i64>> {
        let side = self.main();
        let options = |index: &str| {
            FindOptions::builder()
                .projection(doc! { "next_fire": 1, "claimed_until": 1 })
                .hint(Hint::Name(index.to_owned()))
                .build()
        };
        let others = |claimed: bool| {
            doc! {
                "paused": false,
                "next_fire": { "$exists": true },
                "claimed_until": { "$exists": claimed },
                "_id": { "$nin": taken.clone() },
            }
        };
        let mut first = options("due");
        first.sort = Some(doc! { "next_fire": 1, "_id": 1 });
        first.limit = Some(1);
        let mut rows = on.find(&side.recurring, others(false), first).await?;
        let claimed = options("claimed");
        rows.extend(on.find(&side.recurring, others(true), claimed).await?);
        let mut next = None;
        for row in rows {
            // Skips a definition whose times cannot be read.
            let (Ok(fires), Ok(until)) = (
                row::int(&row, "next_fire"),
                row::optional_int(&row, "claimed_until"),
            ) else {
                continue;
            };
            let free = until.map_or(fires, |until| fires.max(until));
            next = Some(next.map_or(free, |next: i64| next.min(free)));
        }
        Ok(next)
    }

    async fn fire_definitions(&self, firings: &[RecurringFiring]) -> Inner<Vec<Fired>> {
        let jobs = || firings.iter().flat_map(|firing| &firing.jobs);
        let jobs: Vec<NewJob> = jobs().cloned().collect();
        let mut routes = &self.route_ids(&jobs).await?[..];
        let side = self.main();
        let now = self.millis(side).await?;
        let mut tx = side.begin().await?;
        let fired = async {
            let mut fired = Vec::with_capacity(firings.len());
            for firing in firings {
                let (its, others) = routes.split_at(firing.jobs.len());
                routes = others;
                fired.push(self.fire_inside(&mut tx, firing, its, now).await?);
            }
            Ok(fired)
        }
        .await;
        tx.finish(fired).await
    }

    /// Advances a definition to its next slot and stores the jobs of the firing. Does nothing and
    /// returns `Stale` if the token of the firing is outdated. [recurring.fire] [recurring.stale]
    /// [recurring.slot] [recurring.atomic]
    async fn fire_inside(
        &self,
        tx: &mut Tx<'_>,
        firing: &RecurringFiring,
        routes: &[Place<i32>],
        now: i64,
    ) -> Inner<Fired> {
        let found = self.find_definition(tx, &firing.token.name).await?;
        // An unreadable definition cannot be advanced.
        let record = found.as_deref().and_then(readable);
        let Some(fired) = record.and_then(|record| record.fired(firing)) else {
            return Ok(Fired::Stale);
        };
        self.keep_definition(tx, &fired).await?;
        let enqueued = self.store_jobs(tx, &firing.jobs, routes, now).await?;
        Ok(Fired::Applied(enqueued))
    }

    /// Deletes those declared definitions that [`RetireRecurring::retires`] selects, and returns
    /// their names. [recurring.retire]
    async fn retire_inside(&self, tx: &mut Tx<'_>, request: &RetireRecurring) -> Inner<Vec<Name>> {
        let side = self.main();
        let node = doc! { "_id": row::id(request.node) };
        let Some(node) = tx.find_one(&side.nodes, node).await? else {
            return Ok(Vec::new());
        };
        let began = row::int(&node, "started_at")?;
        let old = doc! { "declared": true, "created_at": { "$lt": began } };
        let options = FindOptions::builder()
            .projection(doc! { "created_at": 1 })
            .sort(doc! { "_id": 1 })
            .build();
        let mut retired = Vec::new();
        for row in tx.find(&side.recurring, old, options).await? {
            let created_at = from_millis(row::int(&row, "created_at")?);
            // A definition with an unreadable name stays, because no program declared it.
            let name = name_of(&row);
            let goes = |name: &Name| request.retires(name, true, created_at, from_millis(began));
            retired.extend(name.filter(goes));
        }
        let names: Vec<&str> = retired.iter().map(Name::as_str).collect();
        let gone = doc! { "_id": { "$in": names } };
        tx.delete_many(&side.recurring, gone).await?;
        Ok(retired)
    }
}

/// Returns the document in which a definition is stored. Omits the fields of absent values.
fn document(record: &RecurringRecord) -> Inner<Document> {
    let mut row = doc! {
        "_id": record.definition.name().as_str(),
        "incarnation": row::id(record.incarnation),
        "revision": row::number(record.revision),
        "definition": record.definition.to_stored()?,
        "paused": record.paused,
        "declared": record.declared,
        "created_at": to_millis(record.created_at),
    };
    let times = [
        ("next_fire", record.next_fire),
        ("last_slot", record.last_slot),
    ];
    for (field, at) in times {
        if let Some(at) = at {
            row.insert(field, to_millis(at));
        }
    }
    if let Some((node, until)) = record.claim {
        row.insert("claimed_by", row::id(node));
        row.insert("claimed_until", to_millis(until));
    }
    Ok(row)
}

fn name_of(row: &RawDocument) -> Option<Name> {
    row::name(row, "_id").ok().flatten()
}

/// Reads a definition from its document. If the document cannot be read, logs the error and returns
/// `None`.
fn readable(row: &RawDocument) -> Option<RecurringRecord> {
    record(row)
        .inspect_err(|error| {
            let name = name_of(row);
            tracing::warn!(?name, %error, "skipped a recurring definition that cannot be read");
        })
        .ok()
}

/// Reads a definition from a document of the collection `recurring`.
fn record(row: &RawDocument) -> Inner<RecurringRecord> {
    let missing = |field| InvalidInput::new(field, "is missing");
    let name = row::name(row, "_id")?.ok_or_else(|| missing("_id"))?;
    let text = row::text(row, "definition")?.ok_or_else(|| missing("definition"))?;
    let incarnation = row::bytes(row, "incarnation")?.ok_or_else(|| missing("incarnation"))?;
    let time = |field: &'static str| {
        let at = row::optional_int(row, field)?;
        Ok::<_, InvalidInput>(at.map(from_millis))
    };
    let mut record = RecurringRecord::new(
        Definition::from_stored(name, text)?,
        Incarnation::from_bytes(incarnation),
        row::count(row, "revision")?,
        time("next_fire")?,
        from_millis(row::int(row, "created_at")?),
    );
    record.last_slot = time("last_slot")?;
    record.paused = row::flag(row, "paused");
    record.declared = row::flag(row, "declared");
    record.claim = row::node_id(row, "claimed_by")?.zip(time("claimed_until")?);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratchet_core::{NodeId, Recurring};

    use super::*;

    #[test]
    fn definitions_are_read_as_they_were_written() {
        let recurring = Recurring::every(Duration::from_secs(1)).job(NewJob::new("kind", &1));
        let put = PutRecurring::new(recurring.named("größe").check().unwrap());
        let created = RecurringRecord::created(&put.declared(true), from_millis(7));
        let mut claimed = created.claimed(NodeId::new(), from_millis(99));
        claimed.last_slot = Some(from_millis(3));
        claimed.paused = true;
        for one in [created, claimed] {
            let row = RawDocumentBuf::try_from(&document(&one).unwrap()).unwrap();
            assert_eq!(record(&row).unwrap(), one);
        }
    }
}
