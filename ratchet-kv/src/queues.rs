//! Queues, permits and rates.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use ratchet_core::model::{
    DueRoute, PauseInfo, PauseRequest, PauseScope, Pauses, PermitInfo, QueueInfo, RateAnswer,
    RateRequest,
};
use ratchet_core::rate::{MICROS, Taken};
use ratchet_core::state::JobState;
use ratchet_core::store::{Changed, IfKnown, PermitStore, QueueStore, RateStore};
use ratchet_core::time::{duration_millis, from_millis};
use ratchet_core::{InvalidInput, Name, Priority, Result, Route};

use crate::call::Call;
use crate::engine::{Engine, Order, Transaction};
use crate::keys::{self, Key, Parts, Table};
use crate::store::{KvStore, number, number_of};

impl<T: Transaction> Call<T> {
    pub(crate) async fn pauses(&mut self) -> Result<Pauses> {
        let rows = self.all(Key::new(Table::Paused).all()).await?;
        Ok(rows.iter().filter_map(pause_of).collect())
    }

    /// Returns the routes that have pending jobs, each with the index of these jobs. A route that
    /// has jobs with and without a fair key is returned twice. Reads one index entry for each route
    /// and index.
    pub(crate) async fn routes(&mut self) -> Result<Vec<(Route, Table)>> {
        let mut routes = Vec::new();
        let mut keys = Key::new(Table::PendingFair).bytes()..Key::new(Table::Pending).end();
        while let Some((key, _)) = self.first(keys.clone()).await? {
            let table = match key.first() == Some(&(Table::Pending as u8)) {
                true => Table::Pending,
                false => Table::PendingFair,
            };
            match Parts::of(&key).route() {
                Some(route) => {
                    keys.start = Key::new(table).route(&route).end();
                    routes.push((route, table));
                }
                None => keys.start = keys::after(key),
            }
        }
        Ok(routes)
    }

    /// Returns an error if the route needs a permit of a resource for which no limit is stored.
    pub(crate) async fn require_permit(&mut self, route: &Route) -> Result<()> {
        let Some(resource) = &route.permit else {
            return Ok(());
        };
        let known = self.get(Key::new(Table::Permits).name(resource.as_str()));
        match known.await? {
            Some(_) => Ok(()),
            None => Err(self.refused(InvalidInput::unknown_permit(resource))),
        }
    }

    /// Returns each resource that has a limit, and the number of running jobs that hold a permit of
    /// this resource.
    pub(crate) async fn held_permits(&mut self) -> Result<Vec<PermitInfo>> {
        let mut permits = Vec::new();
        for (key, value) in self.all(Key::new(Table::Permits).all()).await? {
            let name = Parts::of(&key)
                .name()
                .and_then(|name| Name::new("permit", name).ok());
            if let Some((resource, max)) = name.zip(number_of(&value)) {
                let holding = Key::new(Table::Holding).name(resource.as_str()).all();
                let held = self.all(holding).await?.len() as u64;
                permits.push(PermitInfo::new(resource, max, held));
            }
        }
        Ok(permits)
    }
}

fn pause_key(scope: &PauseScope) -> Key {
    Key::new(Table::Paused)
        .byte(scope.code())
        .name(scope.name().as_str())
}

/// Reads a pause. A pause whose value cannot be read is still in effect, without its texts.
fn pause_of((key, value): &(Vec<u8>, Vec<u8>)) -> Option<PauseInfo> {
    let mut parts = Parts::of(key);
    let code = parts.byte()?;
    let scope = PauseScope::from_stored(code.into(), parts.name()?).ok()?;
    let text = std::str::from_utf8(value).unwrap_or_default();
    let stored = PauseInfo::decode(text);
    Some(stored.unwrap_or_else(|_| PauseInfo::new(scope, from_millis(0))))
}

#[async_trait]
impl<E: Engine> QueueStore for KvStore<E> {
    async fn pause(&self, request: &PauseRequest) -> Result<Changed> {
        let mut call = self.write("pause").await?;
        let key = || pause_key(&request.scope);
        if call.get(key()).await?.is_some() {
            return Ok(Changed::Unchanged);
        }
        let pause = request.at(from_millis(call.now));
        call.write(key(), pause.encode()).await?;
        call.commit().await?;
        Ok(Changed::Changed)
    }

    async fn resume(&self, scope: &PauseScope) -> Result<Changed> {
        let mut call = self.write("resume").await?;
        let resumes = call.get(pause_key(scope)).await?.is_some();
        call.remove(pause_key(scope).bytes()).await?;
        call.commit().await?;
        Ok(Changed::when(resumes))
    }

    async fn pauses(&self) -> Result<Vec<PauseInfo>> {
        Ok(self.read("pauses").await?.pauses().await?.into_list())
    }

    async fn queues(&self) -> Result<Vec<QueueInfo>> {
        let mut call = self.read("queues").await?;
        let pauses = call.pauses().await?;
        let mut counts: BTreeMap<(Name, u8), u64> = BTreeMap::new();
        let mut keys = Key::new(Table::State).all();
        loop {
            let page = call.page(&mut keys, Order::Ascending).await?;
            if page.is_empty() {
                break;
            }
            for (key, _) in page {
                let mut parts = Parts::of(&key);
                let queue = parts
                    .name()
                    .and_then(|queue| Name::new("queue", queue).ok());
                if let Some(of) = queue.zip(parts.byte()) {
                    *counts.entry(of).or_default() += 1;
                }
            }
        }
        let count = |((queue, state), count): ((Name, u8), u64)| {
            Some((queue, JobState::from_code(state.into()).ok()?, count))
        };
        Ok(QueueInfo::collect(
            &pauses,
            counts.into_iter().filter_map(count),
        ))
    }

    async fn due_routes(&self, within: Duration) -> Result<Vec<DueRoute>> {
        let mut call = self.read("due_routes").await?;
        let pauses = call.pauses().await?;
        let until = call.now.saturating_add(duration_millis(within));
        let mut first: BTreeMap<Route, i64> = BTreeMap::new();
        for (route, table) in call.routes().await? {
            for priority in Priority::ALL {
                let pending = keys::level(table, &route, priority).all();
                let entry = call.first(pending).await?;
                if let Some(run_at) = entry.and_then(|(key, _)| keys::due_of(&key)) {
                    let first = first.entry(route.clone()).or_insert(run_at);
                    *first = run_at.min(*first);
                }
            }
        }
        first.retain(|_, run_at| *run_at <= until);
        let due = first.iter();
        let due = due.map(|(route, run_at)| pauses.due(route, *run_at, call.now));
        let mut due: Vec<DueRoute> = due.collect();
        DueRoute::sort(&mut due);
        Ok(due)
    }

    async fn count_due(&self, queue: &Name, limit: u64) -> Result<u64> {
        let mut call = self.read("count_due").await?;
        let mut count = 0;
        let routes = call.routes().await?;
        for (route, table) in routes.iter().filter(|(route, _)| route.queue == *queue) {
            for priority in Priority::ALL {
                let left = usize::try_from(limit - count).unwrap_or(usize::MAX);
                count += call.due(*table, route, priority, left).await?.len() as u64;
            }
        }
        Ok(count)
    }
}

impl<T: Transaction> Call<T> {
    /// Returns the keys of the first due jobs of a route and a priority in the index `table`. Jobs
    /// without a fair key are in claim order.
    pub(crate) async fn due(
        &mut self,
        table: Table,
        route: &Route,
        priority: Priority,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let level = keys::level(table, route, priority);
        let end = level.clone().number(self.now).end();
        let entries = self.range(level.before(end), Order::Ascending, limit);
        Ok(entries.await?.into_iter().map(|(key, _)| key).collect())
    }
}

#[async_trait]
impl<E: Engine> PermitStore for KvStore<E> {
    async fn set_permits(&self, resource: &Name, max: u32, if_known: IfKnown) -> Result<Changed> {
        let mut call = self.write("set_permits").await?;
        let key = || Key::new(Table::Permits).name(resource.as_str());
        let before: Option<u32> = number(&mut call, key()).await?;
        if before == Some(max) || (if_known == IfKnown::Keep && before.is_some()) {
            return Ok(Changed::Unchanged);
        }
        call.put(key(), max.to_string()).await?;
        call.commit().await?;
        Ok(Changed::Changed)
    }

    async fn permits(&self) -> Result<Vec<PermitInfo>> {
        self.read("permits").await?.held_permits().await
    }
}

#[async_trait]
impl<E: Engine> RateStore for KvStore<E> {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        let mut call = self.write("take").await?;
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let key = || Key::new(Table::Rate).name(request.key.as_str());
            let known = number(&mut call, key()).await?;
            let taken = request.rate.take(known, call.now * MICROS);
            if let Taken::Granted { tat } | Taken::Wait { tat: Some(tat), .. } = taken {
                call.put(key(), tat.to_string()).await?;
            }
            answers.push(taken.answer());
        }
        call.commit().await?;
        Ok(answers)
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        let mut call = self.write("forget_idle").await?;
        let idle = call.now * MICROS;
        let rows = call.all(Key::new(Table::Rate).all()).await?;
        let rows = rows.into_iter().filter(|(_, value)| {
            let tat: Option<i64> = number_of(value);
            tat.is_none_or(|tat| tat <= idle)
        });
        let mut forgotten = 0;
        for (key, _) in rows.take(limit) {
            call.remove(key).await?;
            forgotten += 1;
        }
        call.commit().await?;
        Ok(forgotten)
    }
}
