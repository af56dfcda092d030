use std::convert::Infallible;
use std::ops::Bound;

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::{InvalidInput, Result};
use crate::model::{
    DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RecurringRecord, RetireRecurring,
};
use crate::name::Name;
use crate::store::{Changed, RecurringStore};
use crate::time::{self, Timestamp, from_millis};

#[async_trait]
impl RecurringStore for MemoryStore {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        self.write(Command::Put {
            put: put.into(),
            next_fire: None,
        })
        .await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        self.read("find", |tables, _| tables.recurring.get(name).cloned())
            .await
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        self.read("definitions", |tables, _| {
            let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
            let range = (begin, Bound::Unbounded);
            let behind = tables.recurring.range::<Name, _>(range);
            RecurringPage::of(behind, limit, |(name, record)| {
                (Some(name.clone()), Some(record.clone()))
            })
        })
        .await
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        self.write(Command::ClaimDueRecurring(request.into())).await
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        self.write(Command::Fire(firings.into())).await
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        self.write(Command::SetPaused {
            name: name.clone(),
            paused,
            next_fire: None,
        })
        .await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        self.write(Command::Delete(name.clone())).await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        self.write(Command::Retire(request.into())).await
    }
}

impl Tables {
    /// Sets the next slot in a command that contains one.
    pub(super) fn complete(&self, command: &mut Command<'_>, now: i64) {
        match command {
            Command::Put { put, next_fire } => {
                let written = self.written(put, now);
                *next_fire = written.and_then(|(record, _)| record.next_fire);
            }
            Command::SetPaused {
                name,
                paused,
                next_fire,
            } => {
                let record = self.with_pause(name, *paused, now);
                *next_fire = record.and_then(|record| record.next_fire);
            }
            _ => {}
        }
    }

    /// Returns the definition as a put writes it at this time. The next slot depends on the
    /// time-zone data of this process. `None` if the put changes nothing.
    fn written(&self, put: &PutRecurring, now: i64) -> Option<(RecurringRecord, PutOutcome)> {
        let found = self.recurring.get(put.definition.name()).cloned();
        put.apply(found.map(Ok::<_, Infallible>), from_millis(now))
    }

    pub(super) fn put(
        &mut self,
        put: &PutRecurring,
        next_fire: Option<Timestamp>,
        now: i64,
    ) -> Result<PutOutcome, InvalidInput> {
        self.require_permit(&put.definition.job().route)?;
        let Some((mut record, outcome)) = self.written(put, now) else {
            return Ok(PutOutcome::Unchanged);
        };
        record.next_fire = next_fire;
        self.recurring.insert(put.definition.name().clone(), record);
        Ok(outcome)
    }

    /// Returns the definition as a pause or its end writes it at this time. The next slot depends
    /// on the time-zone data of this process. `None` if the call changes nothing.
    fn with_pause(&self, name: &Name, paused: bool, now: i64) -> Option<RecurringRecord> {
        let old = self.recurring.get(name)?;
        old.with_pause(paused, from_millis(now))
    }

    pub(super) fn set_paused(
        &mut self,
        name: &Name,
        paused: bool,
        next_fire: Option<Timestamp>,
        now: i64,
    ) -> Changed {
        let Some(mut record) = self.with_pause(name, paused, now) else {
            return Changed::Unchanged;
        };
        record.next_fire = next_fire;
        self.recurring.insert(name.clone(), record);
        Changed::Changed
    }

    pub(super) fn delete(&mut self, name: &Name) -> Changed {
        Changed::when(self.recurring.remove(name).is_some())
    }

    pub(super) fn retire(&mut self, request: &RetireRecurring, now: i64) -> Guarded<Vec<Name>> {
        if !self.is_tenure(Some(&request.guard), now) {
            return Guarded::Stale;
        }
        let Some(began) = self.nodes.get(&request.node).map(|node| node.started_at) else {
            return Guarded::Done(Vec::new());
        };
        let mut retired = Vec::new();
        self.recurring.retain(|name, record| {
            let retires = request.retires(name, record.declared, record.created_at, began);
            retired.extend(retires.then(|| name.clone()));
            !retires
        });
        Guarded::Done(retired)
    }

    /// Returns the answer to a claim at this time, if no definition is due.
    pub(super) fn none_due(&self, now: i64) -> Option<DueRecurring> {
        let now = from_millis(now);
        let mut records = self.recurring.values();
        if records.any(|record| record.is_due(now)) {
            return None;
        }
        let waits = self.recurring.values();
        Some(DueRecurring {
            now,
            definitions: Vec::new(),
            next_in: waits.filter_map(|record| record.wakes_in(now)).min(),
            unreadable: 0,
        })
    }

    pub(super) fn claim_due_recurring(
        &mut self,
        request: &RecurringClaimRequest,
        now: i64,
    ) -> DueRecurring {
        let now = from_millis(now);
        let until = time::add(now, request.lease);
        let due = self.recurring.values().filter(|record| record.is_due(now));
        let mut due: Vec<_> = due
            .map(|record| (record.next_fire, record.definition.name().clone()))
            .collect();
        due.sort();
        due.truncate(request.limit);
        let mut definitions = Vec::with_capacity(due.len());
        for (_, name) in &due {
            if let Some(record) = self.recurring.get_mut(name) {
                *record = record.claimed(request.node, until);
                definitions.push(record.clone());
            }
        }
        let claimed = |name: &Name| due.iter().any(|(_, other)| other == name);
        let others = self.recurring.iter().filter(|(name, _)| !claimed(name));
        let next_in = others.filter_map(|(_, record)| record.wakes_in(now)).min();
        DueRecurring {
            now,
            definitions,
            next_in,
            unreadable: 0,
        }
    }

    pub(super) fn fire_all(
        &mut self,
        firings: &[RecurringFiring],
        now: i64,
    ) -> Result<Vec<Fired>, InvalidInput> {
        firings.iter().map(|one| self.fire(one, now)).collect()
    }

    fn fire(&mut self, firing: &RecurringFiring, now: i64) -> Result<Fired, InvalidInput> {
        let old = self.recurring.get(&firing.token.name);
        let Some(fired) = old.and_then(|record| record.fired(firing)) else {
            return Ok(Fired::Stale);
        };
        let answers = self.enqueue(&firing.jobs, now)?;
        self.recurring.insert(firing.token.name.clone(), fired);
        Ok(Fired::Applied(answers))
    }
}
