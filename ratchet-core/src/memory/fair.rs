//! Limits of fair keys: which jobs wait for a place, and when they get their turns again.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::fair::{self, FREED_BY_A_CLAIM};
use crate::model::{ClaimRequest, FairLimit, FairScope};
use crate::name::Name;
use crate::priority::Priority;
use crate::route::Route;
use crate::store::{Changed, FairStore};

#[async_trait]
impl FairStore for MemoryStore {
    async fn set_fair_limit(&self, scope: &FairScope, max: Option<u32>) -> Result<Changed> {
        self.write(Command::SetFairLimit {
            scope: scope.clone(),
            max,
        })
        .await
    }

    async fn fair_limits(&self) -> Result<Vec<FairLimit>> {
        self.read("fair_limits", |tables, _| {
            tables.fair_limits.clone().into_list()
        })
        .await
    }
}

/// The freed entries: queues and fair keys whose parked jobs may get places.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Freed {
    /// The number of the next entry. Lower numbers are older.
    next: u64,
    /// The number of the entry of each key, by queue.
    queues: BTreeMap<Name, BTreeMap<Name, u64>>,
}

impl Freed {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Adds an entry behind all others, unless the key has one.
    pub(super) fn add(&mut self, queue: &Name, key: &Name) {
        let keys = self.queues.entry(queue.clone()).or_default();
        if !keys.contains_key(key) {
            keys.insert(key.clone(), self.next);
            self.next += 1;
        }
    }

    fn remove(&mut self, (queue, key): &(Name, Name)) {
        let Some(keys) = self.queues.get_mut(queue) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            self.queues.remove(queue);
        }
        if self.queues.is_empty() {
            // The serialized form omits the number of the next entry if there is none.
            self.next = 0;
        }
    }

    /// Returns the oldest entries of the queues that are `wanted`, in the order of queue and key.
    fn oldest(&self, wanted: impl Fn(&Name) -> bool) -> Vec<(Name, Name)> {
        let queues = self.queues.iter().filter(|(queue, _)| wanted(queue));
        let keys = queues.flat_map(|(queue, keys)| {
            let entry = move |(key, number): (&Name, &u64)| (*number, queue.clone(), key.clone());
            keys.iter().map(entry)
        });
        let mut entries: Vec<(u64, Name, Name)> = keys.collect();
        if entries.len() > FREED_BY_A_CLAIM {
            entries.sort_unstable();
            entries.truncate(FREED_BY_A_CLAIM);
        }
        let entries = entries.into_iter().map(|(_, queue, key)| (queue, key));
        let mut entries: Vec<(Name, Name)> = entries.collect();
        entries.sort_unstable();
        entries
    }
}

impl Tables {
    pub(super) fn set_fair_limit(&mut self, scope: &FairScope, max: Option<u32>) -> Changed {
        let changed = self.fair_limits.set(scope, max);
        if changed == Changed::Changed {
            for (queue, key) in self.indexes.parked_keys(scope) {
                self.freed.add(&queue, &key);
            }
        }
        changed
    }

    /// Returns how many more jobs of a key may run in a queue. `None` if the key has no limit.
    pub(super) fn free_places(&self, queue: &Name, key: &Name) -> Option<u64> {
        let max = self.fair_limits.of(queue, key)?;
        let running = self.indexes.running_of(&(queue.clone(), key.clone()));
        Some(fair::places_for(Some(max), running, 0))
    }

    /// Returns the freed entries that a claim takes, in the order of queue and key.
    pub(super) fn freed_of(&self, request: &ClaimRequest) -> Vec<(Name, Name)> {
        if self.freed.is_empty() || !self.may_claim(request.node) {
            return Vec::new();
        }
        let wanted = |queue: &Name| request.queues.contains(queue) && !self.pauses.has_queue(queue);
        self.freed.oldest(wanted)
    }

    /// Takes the freed entries of a claim, and gives turns to parked jobs of their keys.
    /// `[fair.limit.free]` `[fair.limit.wait]`
    pub(super) fn wake_parked(&mut self, request: &ClaimRequest, now: i64) {
        let freed = self.freed_of(request);
        for entry in &freed {
            self.freed.remove(entry);
        }
        let levels = freed
            .iter()
            .map(|place| self.indexes.parked_levels(place).len());
        let share = fair::share(levels.sum());
        for place in freed {
            let (queue, key) = &place;
            let numbers = (
                self.fair_limits.of(queue, key),
                self.indexes.running_of(&place),
            );
            let mut more = false;
            let levels: Vec<(Route, Priority)> =
                self.indexes.parked_levels(&place).cloned().collect();
            for level in levels {
                let (woken, rest) = self.indexes.first_parked(&level, key, numbers, share);
                more |= rest;
                for id in woken {
                    let job = self.job(id);
                    let turn = job.and_then(|job| self.indexes.turn_of_woken(job, now));
                    self.change(id, |job| job.turn = turn);
                }
            }
            if more {
                self.freed.add(queue, key);
            }
        }
    }
}
