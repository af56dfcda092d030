//! Recurring definitions.

use async_trait::async_trait;
use ratchet_core::model::{
    DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RecurringRecord, RetireRecurring,
};
use ratchet_core::store::{Changed, RecurringStore};
use ratchet_core::time::{self, from_millis};
use ratchet_core::{Name, Result, StoreError, StoreErrorKind};

use crate::call::{Call, decoded};
use crate::engine::{Engine, Entry, Order, Transaction};
use crate::keys::{self, Key, Parts, Table};
use crate::store::KvStore;

/// Returns the key of a mark, which says that the definition `name` cannot be read and that a claim
/// has reported this. The mark is not in the row of the definition, because a newer program may be
/// able to read that row.
fn reported(name: &str) -> Key {
    Key::new(Table::Unreadable).name(name)
}

fn key(name: &Name) -> Key {
    Key::new(Table::Recurring).name(name.as_str())
}

impl<T: Transaction> Call<T> {
    async fn definition(&mut self, name: &Name) -> Result<Option<RecurringRecord>> {
        self.read(key(name), RecurringRecord::decode).await
    }

    /// Marks the definitions in `rows`, which cannot be read, as reported. Later claims then do not
    /// report them again. Returns how many of them had no mark yet.
    async fn report_unreadable(&mut self, rows: &[Entry]) -> Result<usize> {
        let mut unreadable = 0;
        for (key, _) in rows {
            let Some(name) = Parts::of(key).name() else {
                continue;
            };
            if self.get(reported(name)).await?.is_none() {
                self.put(reported(name), "").await?;
                unreadable += 1;
            }
        }
        Ok(unreadable)
    }

    async fn put_definition(&mut self, record: &RecurringRecord) -> Result<()> {
        self.write(key(record.definition.name()), record.encode())
            .await
    }

    async fn fire(&mut self, firing: &RecurringFiring) -> Result<Fired> {
        let stored = self.definition(&firing.token.name).await?;
        let Some(fired) = stored.and_then(|record| record.fired(firing)) else {
            return Ok(Fired::Stale);
        };
        let answers = self.enqueue(&firing.jobs).await?;
        self.put_definition(&fired).await?;
        Ok(Fired::Applied(answers))
    }
}

#[async_trait]
impl<E: Engine> RecurringStore for KvStore<E> {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        let mut call = self.write("put").await?;
        call.require_permit(&put.definition.job().route).await?;
        let found = call.get(key(put.definition.name())).await?;
        let found = found.map(|row| decoded(&row, RecurringRecord::decode).ok_or(()));
        let Some((record, outcome)) = put.apply(found, from_millis(call.now)) else {
            return Ok(PutOutcome::Unchanged);
        };
        let mark = reported(put.definition.name().as_str());
        call.remove(mark.bytes()).await?;
        call.put_definition(&record).await?;
        call.commit().await?;
        Ok(outcome)
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        let mut call = self.read("find").await?;
        let Some(value) = call.get(key(name)).await? else {
            return Ok(None);
        };
        let read = decoded(&value, RecurringRecord::decode);
        let corrupt = || StoreError::new(StoreErrorKind::Corrupt, "find");
        read.ok_or_else(|| corrupt().with_source("the stored recurring definition cannot be read"))
            .map(Some)
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        let mut call = self.read("definitions").await?;
        let keys = match after {
            Some(after) => Key::new(Table::Recurring).from(keys::after(key(after).bytes())),
            None => Key::new(Table::Recurring).all(),
        };
        let entries = call
            .range(keys, Order::Ascending, limit.saturating_add(1))
            .await?;
        Ok(RecurringPage::of(entries, limit, |(key, value)| {
            let name = Parts::of(&key)
                .name()
                .and_then(|name| Name::new("name", name).ok());
            (name, decoded(&value, RecurringRecord::decode))
        }))
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        let mut call = self.write("claim_due_recurring").await?;
        let now = from_millis(call.now);
        let until = time::add(now, request.lease);
        let rows = call.all(Key::new(Table::Recurring).all()).await?;
        let read = |(_, value): &(_, Vec<u8>)| decoded(value, RecurringRecord::decode);
        let (readable, unreadable): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| read(row).is_some());
        let records: Vec<RecurringRecord> = readable.iter().filter_map(read).collect();
        let unreadable = call.report_unreadable(&unreadable).await?;
        let (mut due, mut others): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.is_due(now));
        due.sort_by(|a, b| {
            let place = |record: &RecurringRecord| record.next_fire;
            place(a)
                .cmp(&place(b))
                .then_with(|| a.definition.name().cmp(b.definition.name()))
        });
        others.extend(due.split_off(request.limit.min(due.len())));
        let mut definitions = Vec::with_capacity(due.len());
        for record in due {
            let claimed = record.claimed(request.node, until);
            call.put_definition(&claimed).await?;
            definitions.push(claimed);
        }
        call.commit().await?;
        Ok(DueRecurring {
            now,
            definitions,
            next_in: others
                .iter()
                .filter_map(|record| record.wakes_in(now))
                .min(),
            unreadable,
        })
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        let mut call = self.write("fire").await?;
        let mut fired = Vec::with_capacity(firings.len());
        for firing in firings {
            fired.push(call.fire(firing).await?);
        }
        call.commit().await?;
        Ok(fired)
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        let mut call = self.write("set_paused").await?;
        let now = from_millis(call.now);
        let stored = call.definition(name).await?;
        let Some(other) = stored.and_then(|record| record.with_pause(paused, now)) else {
            return Ok(Changed::Unchanged);
        };
        call.put_definition(&other).await?;
        call.commit().await?;
        Ok(Changed::Changed)
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        let mut call = self.write("delete").await?;
        let exists = call.get(key(name)).await?.is_some();
        call.remove(key(name).bytes()).await?;
        call.remove(reported(name.as_str()).bytes()).await?;
        call.commit().await?;
        Ok(Changed::when(exists))
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        let mut call = self.write("retire").await?;
        if !call.allows(Some(&request.guard)).await? {
            return Ok(Guarded::Stale);
        }
        let Some(node) = call.node(request.node).await? else {
            return Ok(Guarded::Done(Vec::new()));
        };
        let mut retired = Vec::new();
        for (_, value) in call.all(Key::new(Table::Recurring).all()).await? {
            if let Some(record) = decoded(&value, RecurringRecord::decode) {
                let name = record.definition.name();
                if request.retires(name, record.declared, record.created_at, node.started_at) {
                    call.remove(key(name).bytes()).await?;
                    retired.push(name.clone());
                }
            }
        }
        call.commit().await?;
        Ok(Guarded::Done(retired))
    }
}
