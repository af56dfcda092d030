//! [`RecurringStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::model::{
    Definition, DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest,
    RecurringFiring, RecurringPage, RecurringRecord, RetireRecurring,
};
use ratchet_core::store::{Changed, RecurringStore};
use ratchet_core::time::{add, from_millis, millis_between, to_millis};
use ratchet_core::{Incarnation, InvalidInput, Name, Result};
use rusqlite::{Row, params};

use crate::enqueue;
use crate::error::Result as Inner;
use crate::locks::is_tenure;
use crate::permits;
use crate::queue::Urgency;
use crate::request::Work;
use crate::row;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl RecurringStore for SqliteStore {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        let put = put.clone();
        self.write("put", Urgency::Normal, move |work| put_one(work, &put))
            .await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        let name = name.clone();
        self.read("find", move |work| find(work, &name)?.transpose())
            .await
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        let after = after.cloned();
        self.read("definitions", move |work| list(work, after.as_ref(), limit))
            .await
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        let request = request.clone();
        self.write_unless(
            "claim_due_recurring",
            |work| {
                let nothing = due(work, 1)?.is_empty();
                nothing.then(|| answer(work, Vec::new(), &[])).transpose()
            },
            move |work| claim(work, &request),
        )
        .await
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        let firings = firings.to_vec();
        self.write("fire", Urgency::Normal, move |work| {
            firings.iter().map(|one| fire(work, one)).collect()
        })
        .await
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        let name = name.clone();
        self.write("set_paused", Urgency::Normal, move |work| {
            let Some(record) = find(work, &name)?.transpose()? else {
                return Ok(Changed::Unchanged);
            };
            let Some(other) = record.with_pause(paused, from_millis(work.now)) else {
                return Ok(Changed::Unchanged);
            };
            store(work, &other)?;
            Ok(Changed::Changed)
        })
        .await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        let name = name.clone();
        self.write("delete", Urgency::Normal, move |work| {
            Ok(Changed::when(delete(work, &name)? > 0))
        })
        .await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        let request = request.clone();
        self.write("retire", Urgency::Normal, move |work| {
            retire(work, &request)
        })
        .await
    }
}

/// Returns the definition with this name, if it is stored. The inner result is an error if the
/// definition cannot be read.
fn find(work: &Work<'_>, name: &Name) -> Inner<Option<Inner<RecurringRecord>>> {
    let mut statement = work.conn.prepare_cached(&SQL.find_recurring)?;
    let mut rows = statement.query([name.as_str()])?;
    Ok(rows.next()?.map(record))
}

fn put_one(work: &Work<'_>, put: &PutRecurring) -> Inner<PutOutcome> {
    permits::require_one(work, &put.definition.job().route)?;
    let found = find(work, put.definition.name())?;
    let Some((record, outcome)) = put.apply(found, from_millis(work.now)) else {
        return Ok(PutOutcome::Unchanged);
    };
    store(work, &record)?;
    Ok(outcome)
}

/// Stores the new state of a definition, and removes its claim.
fn store(work: &Work<'_>, record: &RecurringRecord) -> Inner<()> {
    work.conn
        .prepare_cached(&SQL.put_recurring)?
        .execute(params![
            record.definition.name().as_str(),
            record.incarnation.as_bytes(),
            record.revision.cast_signed(),
            record.definition.to_stored()?,
            record.next_fire.map(to_millis),
            record.last_slot.map(to_millis),
            record.paused,
            record.declared,
            to_millis(record.created_at),
        ])?;
    Ok(())
}

fn list(work: &Work<'_>, after: Option<&Name>, limit: usize) -> Inner<RecurringPage> {
    let mut statement = work.conn.prepare_cached(&SQL.list_recurring)?;
    // No name is empty, so every name sorts after "".
    let after = after.map_or("", Name::as_str);
    // One more than a page, to know whether another page follows.
    let read = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![after, read], |row| {
        Ok((name_of(row), readable(row)))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(RecurringPage::of(rows, limit, |row| row))
}

/// Returns up to `limit` definitions that are due and that no node has claimed. Each entry contains
/// the name, and the definition if it can be read.
fn due(work: &Work<'_>, limit: usize) -> Inner<Vec<(String, Option<RecurringRecord>)>> {
    let mut statement = work.conn.prepare_cached(&SQL.due_recurring)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![work.now, limit])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push((row.get(0)?, readable(row)));
    }
    Ok(due)
}

fn claim(work: &Work<'_>, request: &RecurringClaimRequest) -> Inner<DueRecurring> {
    let until = add(from_millis(work.now), request.lease);
    let mut claim = work.conn.prepare_cached(&SQL.claim_recurring)?;
    let (mut names, mut definitions) = (Vec::new(), Vec::new());
    for (name, record) in due(work, request.limit)? {
        // Unreadable definitions are claimed too. Otherwise they would be the first due ones in
        // every call, and block the others.
        claim.execute(params![name, request.node.as_bytes(), to_millis(until)])?;
        definitions.extend(record.map(|record| record.claimed(request.node, until)));
        names.push(name);
    }
    answer(work, definitions, &names)
}

/// Returns the result of the call that has claimed the definitions with these names.
fn answer(
    work: &Work<'_>,
    definitions: Vec<RecurringRecord>,
    names: &[String],
) -> Inner<DueRecurring> {
    let taken = serde_json::to_string(names)
        .map_err(|error| InvalidInput::new("name", error.to_string()))?;
    let next: Option<i64> = work
        .conn
        .prepare_cached(&SQL.next_recurring)?
        .query_row([taken], |row| row.get(0))?;
    let unreadable = names.len() - definitions.len();
    Ok(DueRecurring {
        now: from_millis(work.now),
        definitions,
        next_in: next.map(|next| millis_between(work.now, next)),
        unreadable,
    })
}

fn fire(work: &mut Work<'_>, firing: &RecurringFiring) -> Inner<Fired> {
    let token = &firing.token;
    let Ok(revision) = i64::try_from(token.revision) else {
        return Ok(Fired::Stale);
    };
    let moved = work
        .conn
        .prepare_cached(&SQL.fire_recurring)?
        .execute(params![
            token.name.as_str(),
            token.incarnation.as_bytes(),
            revision,
            firing.next_fire.map(to_millis),
            firing.last_slot().map(to_millis),
        ])?;
    if moved == 0 {
        return Ok(Fired::Stale);
    }
    enqueue::enqueue(work, &firing.jobs).map(Fired::Applied)
}

fn delete(work: &Work<'_>, name: &Name) -> Inner<usize> {
    let mut delete = work.conn.prepare_cached(&SQL.delete_recurring)?;
    Ok(delete.execute([name.as_str()])?)
}

fn retire(work: &Work<'_>, request: &RetireRecurring) -> Inner<Guarded<Vec<Name>>> {
    if !is_tenure(work, Some(&request.guard))? {
        return Ok(Guarded::Stale);
    }
    let mut statement = work.conn.prepare_cached(&SQL.declared_recurring)?;
    let mut rows = statement.query([request.node.as_bytes()])?;
    let mut retired = Vec::new();
    while let Some(row) = rows.next()? {
        let (created_at, began) = (from_millis(row.get(1)?), from_millis(row.get(2)?));
        // A definition with an unreadable name stays, because no program declared it.
        let name = row::name(row, 0, "name").ok().flatten();
        retired.extend(name.filter(|name| request.retires(name, true, created_at, began)));
    }
    drop(rows);
    for name in &retired {
        delete(work, name)?;
    }
    Ok(Guarded::Done(retired))
}

fn name_of(row: &Row<'_>) -> Option<Name> {
    row::name(row, 0, "name").ok().flatten()
}

/// Reads a definition from a row. If the row cannot be read, logs the error and returns `None`.
fn readable(row: &Row<'_>) -> Option<RecurringRecord> {
    record(row)
        .inspect_err(|error| {
            let name = name_of(row);
            tracing::warn!(?name, %error, "skipped a recurring definition that cannot be read");
        })
        .ok()
}

/// Reads a definition from a row of the statement `find_recurring`.
fn record(row: &Row<'_>) -> Inner<RecurringRecord> {
    let missing = |field| InvalidInput::new(field, "is missing");
    let name = row::name(row, 0, "name")?.ok_or_else(|| missing("name"))?;
    let text = row::text(row, 3, "definition")?.ok_or_else(|| missing("definition"))?;
    let time = |column: usize| {
        let at: Option<i64> = row.get(column)?;
        Ok::<_, rusqlite::Error>(at.map(from_millis))
    };
    let mut record = RecurringRecord::new(
        Definition::from_stored(name, text)?,
        Incarnation::from_bytes(row.get(1)?),
        row::seq(row, 2)?,
        time(4)?,
        from_millis(row.get(8)?),
    );
    record.last_slot = time(5)?;
    record.paused = row.get(6)?;
    record.declared = row.get(7)?;
    record.claim = row::node_id(row, 9)?.zip(time(10)?);
    Ok(record)
}
