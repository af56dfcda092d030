use std::convert::Infallible;
use std::ops::Bound;

use async_trait::async_trait;

use super::MemoryStore;
use super::tables::Tables;
use crate::error::{Result, StoreError};
use crate::limits;
use crate::model::{
    DueRecurring, Fired, Guarded, PutOutcome, PutRecurring, RecurringClaimRequest, RecurringFiring,
    RecurringPage, RecurringRecord, RetireRecurring,
};
use crate::name::Name;
use crate::store::{Changed, RecurringStore};
use crate::time::{self, from_millis};

#[async_trait]
impl RecurringStore for MemoryStore {
    async fn put(&self, put: &PutRecurring) -> Result<PutOutcome> {
        self.call("put", |tables, now| {
            tables.require_permit(&put.definition.job().route, "put")?;
            let name = put.definition.name();
            let found = tables.recurring.get(name).cloned();
            let found = found.map(Ok::<_, Infallible>);
            let Some((record, outcome)) = put.apply(found, from_millis(now)) else {
                return Ok(PutOutcome::Unchanged);
            };
            tables.recurring.insert(name.clone(), record);
            Ok(outcome)
        })
        .await
    }

    async fn find(&self, name: &Name) -> Result<Option<RecurringRecord>> {
        self.call("find", |tables, _| Ok(tables.recurring.get(name).cloned()))
            .await
    }

    async fn definitions(&self, after: Option<&Name>, limit: usize) -> Result<RecurringPage> {
        limits::check_limit("limit", limit)
            .map_err(|problem| StoreError::from(problem).during("definitions"))?;
        self.call("definitions", |tables, _| {
            let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
            let range = (begin, Bound::Unbounded);
            let behind = tables.recurring.range::<Name, _>(range);
            Ok(RecurringPage::of(behind, limit, |(name, record)| {
                (Some(name.clone()), Some(record.clone()))
            }))
        })
        .await
    }

    async fn claim_due_recurring(&self, request: &RecurringClaimRequest) -> Result<DueRecurring> {
        request.validate()?;
        self.call("claim_due_recurring", |tables, now| {
            Ok(tables.claim_due_recurring(request, now))
        })
        .await
    }

    async fn fire(&self, firings: &[RecurringFiring]) -> Result<Vec<Fired>> {
        RecurringFiring::validate_all(firings)?;
        self.call("fire", |tables, now| {
            firings.iter().map(|one| tables.fire(one, now)).collect()
        })
        .await
    }

    async fn set_paused(&self, name: &Name, paused: bool) -> Result<Changed> {
        self.call("set_paused", |tables, now| {
            let old = tables.recurring.get(name);
            let other = old.and_then(|record| record.with_pause(paused, from_millis(now)));
            let Some(other) = other else {
                return Ok(Changed::Unchanged);
            };
            tables.recurring.insert(name.clone(), other);
            Ok(Changed::Changed)
        })
        .await
    }

    async fn delete(&self, name: &Name) -> Result<Changed> {
        self.call("delete", |tables, _| {
            Ok(Changed::when(tables.recurring.remove(name).is_some()))
        })
        .await
    }

    async fn retire(&self, request: &RetireRecurring) -> Result<Guarded<Vec<Name>>> {
        request.validate()?;
        self.call("retire", |tables, now| {
            if !tables.is_tenure(Some(&request.guard), now) {
                return Ok(Guarded::Stale);
            }
            let Some(began) = tables.nodes.get(&request.node).map(|node| node.started_at) else {
                return Ok(Guarded::Done(Vec::new()));
            };
            let mut retired = Vec::new();
            tables.recurring.retain(|name, record| {
                let retires = request.retires(name, record.declared, record.created_at, began);
                retired.extend(retires.then(|| name.clone()));
                !retires
            });
            Ok(Guarded::Done(retired))
        })
        .await
    }
}

impl Tables {
    fn claim_due_recurring(&mut self, request: &RecurringClaimRequest, now: i64) -> DueRecurring {
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

    fn fire(&mut self, firing: &RecurringFiring, now: i64) -> Result<Fired> {
        let old = self.recurring.get(&firing.token.name);
        let Some(fired) = old.and_then(|record| record.fired(firing)) else {
            return Ok(Fired::Stale);
        };
        let answers = self.enqueue(&firing.jobs, now)?;
        self.recurring.insert(firing.token.name.clone(), fired);
        Ok(Fired::Applied(answers))
    }
}
