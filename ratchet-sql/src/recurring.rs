//! [`RecurringStore`] on SQL.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_core::model::{
    Definition, DueRecurring, Enqueued, Fired, Guarded, NewJob, PutOutcome, PutRecurring,
    RecurringClaimRequest, RecurringFiring, RecurringPage, RecurringRecord, RecurringToken,
    RetireRecurring,
};
use ratchet_core::store::{Changed, RecurringStore};
use ratchet_core::time::{Timestamp, duration_millis, from_millis, millis_between, to_millis};
use ratchet_core::{Incarnation, InvalidInput, Name, Result, StoreErrorKind};
use uuid::Uuid;

use crate::dialect::{Dialect, Lease, Query, Row, Run};
use crate::failure::{Failure, Result as Inner};
use crate::fair::Turns;
use crate::row;
use crate::statement::Statement;
use crate::store::SqlStore;

/// Maximum lease of a claimed definition, in milliseconds. The database can add it to a time
/// without overflow.
const LONGEST_LEASE: i64 = i64::MAX / 2;

/// If the reply to a call is lost, the store repeats the call. A repeated pause, resumption or
/// deletion returns `Unchanged`, even if the first call made the change. A repeated firing returns
/// `Stale`.
#[async_trait]
impl<D: Dialect> RecurringStore for SqlStore<D> {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        self.call("put", || self.put_definition(put)).await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        self.call("find", || async {
            let find = self.sql().find_recurring.query().bind(name.as_str());
            let rows = self.lease().await?.rows(find).await?;
            rows.first().map(record).transpose()
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
        self.call("set_paused", || self.pause_definition(name, paused))
            .await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        self.call("delete", || async {
            let delete = self.sql().delete_recurring.query();
            let delete = delete.bind(&[name.as_str()][..]);
            let rows = self.lease().await?.execute(delete).await?;
            Ok(Changed::when(rows > 0))
        })
        .await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        self.call("retire", || self.retire_definitions(request))
            .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn put_definition(&self, put: &PutRecurring) -> Inner<PutOutcome> {
        // This call fails if the limit of a needed permit is missing. The caller thus learns of the
        // problem now, and not when the first job is created.
        self.place_of(put.definition.job()).await?;
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let outcome = self.put_inside(&mut lease, put).await;
        lease.end(outcome).await
    }

    async fn put_inside(&self, lease: &mut D::Lease, put: &PutRecurring) -> Inner<PutOutcome> {
        let sql = self.sql();
        let found = self.lock_definition(lease, put.definition.name()).await?;
        let now = self.now_on(lease).await?;
        let Some((record, outcome)) = put.apply(found, now) else {
            return Ok(PutOutcome::Unchanged);
        };
        if outcome == PutOutcome::Created {
            if lease.execute(bind(&sql.add_recurring, &record)?).await? == 0 {
                let text = "a concurrent call stored the definition";
                return Err(Failure::new(StoreErrorKind::Contention, text));
            }
            return Ok(outcome);
        }
        lease.execute(bind(&sql.change_recurring, &record)?).await?;
        Ok(outcome)
    }

    /// Locks and returns the definition with this name, or `None` if it does not exist. The inner
    /// `Result` is an error if the definition exists but cannot be read.
    async fn lock_definition(
        &self,
        lease: &mut D::Lease,
        name: &Name,
    ) -> Inner<Option<Inner<RecurringRecord>>> {
        let lock = self.sql().lock_recurring.query();
        let rows = lease.rows(lock.bind(name.as_str())).await?;
        Ok(rows.first().map(record))
    }

    async fn now_on(&self, lease: &mut D::Lease) -> Inner<Timestamp> {
        let rows = lease.rows(self.sql().now.query()).await?;
        let row = rows.first().ok_or_else(no_row)?;
        Ok(from_millis(row.try_get(0)?))
    }

    async fn list_definitions(&self, after: Option<&Name>, limit: usize) -> Inner<RecurringPage> {
        let list = |after: &str, count| {
            let list = self.sql().list_recurring.query();
            list.bind(after).bind(count)
        };
        // No name is empty, so every name sorts after "". Reads one row more than the page needs,
        // to find out whether there is another page.
        let after = after.map_or("", Name::as_str);
        let mut lease = self.lease().await?;
        let rows = self.named(&mut lease, list, 0, after, limit + 1).await?;
        Ok(RecurringPage::of(&rows, limit, |row| {
            (name_of(row), readable(row))
        }))
    }

    async fn claim_definitions(&self, request: &RecurringClaimRequest) -> Inner<DueRecurring> {
        let claim = self
            .sql()
            .claim_recurring
            .query()
            .bind(request.node.as_uuid())
            .bind(i64::try_from(request.limit).unwrap_or(i64::MAX))
            .bind(duration_millis(request.lease).min(LONGEST_LEASE));
        let rows = self.lease().await?.rows(claim).await?;
        let first = rows.first().ok_or_else(no_row)?;
        let (now, next): (i64, Option<i64>) = (first.try_get(11)?, first.try_get(12)?);
        let mut definitions = Vec::with_capacity(rows.len());
        let mut claimed = 0;
        for row in &rows {
            // The statement also claims definitions that cannot be read. Otherwise every later
            // claim would select them again, instead of readable ones.
            if row.try_get::<Option<&str>>(0)?.is_some() {
                claimed += 1;
                definitions.extend(readable(row));
            }
        }
        Ok(DueRecurring {
            now: from_millis(now),
            unreadable: claimed - definitions.len(),
            definitions,
            next_in: next.map(|next| millis_between(now, next)),
        })
    }

    async fn fire_definitions(&self, firings: &[RecurringFiring]) -> Inner<Vec<Fired>> {
        let jobs: Vec<NewJob> = jobs_of(firings.iter());
        // Store new routes before the transaction begins, because storing them uses another
        // connection.
        self.places_of(&jobs).await?;
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let fired = self.fire_inside(&mut lease, firings).await;
        lease.end(fired).await
    }

    async fn fire_inside(
        &self,
        lease: &mut D::Lease,
        firings: &[RecurringFiring],
    ) -> Inner<Vec<Fired>> {
        let names: Vec<&str> = firings.iter().map(|one| one.token.name.as_str()).collect();
        let mut tokens: HashMap<String, (Uuid, u64)> = HashMap::new();
        let lock = self.sql().lock_tokens.query().bind(&names);
        for row in lease.rows(lock).await? {
            tokens.insert(row.try_get(0)?, (row.try_get(1)?, row::seq(&row, 2)?));
        }
        let is_present = |token: &RecurringToken| {
            let present = tokens.get(token.name.as_str());
            present == Some(&(token.incarnation.as_uuid(), token.revision))
        };
        let present = || firings.iter().filter(|firing| is_present(&firing.token));
        let jobs = jobs_of(present());
        let mut answers = Vec::new();
        if !jobs.is_empty() {
            let routes = self.places_of(&jobs).await?;
            answers = self.store_jobs(lease, &jobs, &routes, Turns::Given).await?;
        }
        self.move_on(lease, present()).await?;
        let mut answers = answers.into_iter();
        let fired = |firing: &RecurringFiring| {
            if !is_present(&firing.token) {
                return Fired::Stale;
            }
            let of_this: Vec<Enqueued> = answers.by_ref().take(firing.jobs.len()).collect();
            Fired::Applied(of_this)
        };
        Ok(firings.iter().map(fired).collect())
    }

    /// Writes the next fire time and the last slot of each fired definition. The caller must have
    /// locked the definitions and checked their tokens.
    async fn move_on<'a>(
        &self,
        lease: &mut D::Lease,
        firings: impl Iterator<Item = &'a RecurringFiring>,
    ) -> Inner<()> {
        let (mut names, mut next, mut last) = (Vec::new(), Vec::new(), Vec::new());
        for firing in firings {
            names.push(firing.token.name.as_str());
            next.push(firing.next_fire.map(to_millis));
            last.push(firing.last_slot().map(to_millis));
        }
        if names.is_empty() {
            return Ok(());
        }
        let fire = self.sql().fire_recurring.query();
        lease
            .execute(fire.table(&[("name", &names), ("next_fire", &next), ("last_slot", &last)]))
            .await?;
        Ok(())
    }

    async fn pause_definition(&self, name: &Name, paused: bool) -> Inner<Changed> {
        let mut lease = self.lease().await?;
        lease.begin().await?;
        let done = async {
            let found = self.lock_definition(&mut lease, name).await?;
            let Some(record) = found.transpose()? else {
                return Ok(Changed::Unchanged);
            };
            let now = self.now_on(&mut lease).await?;
            let Some(other) = record.with_pause(paused, now) else {
                return Ok(Changed::Unchanged);
            };
            let change = bind(&self.sql().change_recurring, &other)?;
            Ok(Changed::when(lease.execute(change).await? > 0))
        }
        .await;
        lease.end(done).await
    }

    async fn retire_definitions(&self, request: &RetireRecurring) -> Inner<Guarded<Vec<Name>>> {
        let Some(mut lease) = self
            .begin_guarded(self.lease().await?, Some(&request.guard))
            .await?
        else {
            return Ok(Guarded::Stale);
        };
        let retired = async {
            let declared = self.sql().declared_recurring.query();
            let declared = declared.bind(request.node.as_uuid());
            let mut retired = Vec::new();
            for row in lease.rows(declared).await? {
                let times = (row.try_get(1)?, row.try_get(2)?);
                let (created_at, began) = (from_millis(times.0), from_millis(times.1));
                // Skip a name that cannot be read: no program can have declared it.
                let name = row::name(&row, 0, "name").ok().flatten();
                retired.extend(name.filter(|name| request.retires(name, true, created_at, began)));
            }
            // Sort in byte order here, because not every server does.
            retired.sort();
            let names: Vec<&str> = retired.iter().map(Name::as_str).collect();
            let delete = self.sql().delete_recurring.query().bind(&names);
            lease.execute(delete).await?;
            Ok(Guarded::Done(retired))
        }
        .await;
        lease.end(retired).await
    }
}

fn jobs_of<'a>(firings: impl Iterator<Item = &'a RecurringFiring>) -> Vec<NewJob> {
    firings.flat_map(|firing| &firing.jobs).cloned().collect()
}

fn no_row() -> Failure {
    Failure::new(StoreErrorKind::Other, "the database returned no row")
}

/// Binds the values of a definition to the statement `add_recurring` or `change_recurring`.
fn bind<D: Dialect>(statement: &Statement<D>, record: &RecurringRecord) -> Inner<D::Query> {
    Ok(statement
        .query()
        .bind(record.definition.name().as_str())
        .bind(record.incarnation.as_uuid())
        .bind(record.revision.cast_signed())
        .bind(&record.definition.to_stored()?)
        .bind(record.next_fire.map(to_millis))
        .bind(record.last_slot.map(to_millis))
        .bind(record.paused)
        .bind(record.declared)
        .bind(to_millis(record.created_at)))
}

fn name_of(row: &impl Row) -> Option<Name> {
    row::name(row, 0, "name").ok().flatten()
}

/// Reads the recurring definition in a row. If the definition cannot be read, logs a warning and
/// returns `None`.
fn readable(row: &impl Row) -> Option<RecurringRecord> {
    record(row)
        .inspect_err(|error| {
            let name = name_of(row);
            tracing::warn!(?name, %error, "skipped a recurring definition that cannot be read");
        })
        .ok()
}

/// Reads the recurring definition in a row. The row must begin with the columns of the statement
/// `find_recurring`.
fn record(row: &impl Row) -> Inner<RecurringRecord> {
    let missing = |field| InvalidInput::new(field, "is missing");
    let name = row::name(row, 0, "name")?.ok_or_else(|| missing("name"))?;
    let text = row::text(row, 3, "definition")?.ok_or_else(|| missing("definition"))?;
    let time = |column: usize| {
        let at: Option<i64> = row.try_get(column)?;
        Ok::<_, Failure>(at.map(from_millis))
    };
    let mut record = RecurringRecord::new(
        Definition::from_stored(name, text)?,
        Incarnation::from(row.try_get::<Uuid>(1)?),
        row::seq(row, 2)?,
        time(4)?,
        from_millis(row.try_get(8)?),
    );
    record.last_slot = time(5)?;
    record.paused = row.try_get(6)?;
    record.declared = row.try_get(7)?;
    record.claim = row::node_id(row, 9)?.zip(time(10)?);
    Ok(record)
}
