//! Limits of fair keys: which jobs wait for a place, and when they get their turns again.

use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::fair;
use crate::id::JobId;
use crate::model::{FairLimit, FairScope, StoredJob};
use crate::name::Name;
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

impl Tables {
    pub(super) fn set_fair_limit(&mut self, scope: &FairScope, max: Option<u32>) -> Changed {
        let changed = self.fair_limits.set(scope, max);
        if changed == Changed::Changed {
            for id in self.indexes.parked(scope) {
                self.change(id, |job| job.turn = None);
            }
        }
        changed
    }

    /// Returns how many more jobs of a key may run in a queue. `None` if the key has no limit.
    pub(super) fn free_places(&self, queue: &Name, key: &Name) -> Option<u64> {
        let max = self.fair_limits.of(queue, key)?;
        Some(fair::places_for(max, self.running_of(queue, key), 0))
    }

    fn running_of(&self, queue: &Name, key: &Name) -> u64 {
        let of_key = |job: &&StoredJob| {
            let spec = &job.record.spec;
            spec.route.queue == *queue && job.fair_key() == Some(key)
        };
        self.running().filter(of_key).count() as u64
    }

    /// Notes that a change of a job may free the place of its fair key, or the place that was free
    /// for the job.
    pub(super) fn note_place(&mut self, id: JobId) {
        if self.fair_limits.is_empty() {
            return;
        }
        let place = self.job(id).and_then(StoredJob::place);
        if let Some((queue, key)) = place {
            self.freed.insert((queue.clone(), key.clone()));
        }
    }

    /// Gives turns to parked jobs of the keys that may have free places. Every store call calls
    /// this method at its end. `[fair.limit.free]` `[fair.limit.wait]`
    pub(super) fn fill_places(&mut self, now: i64) {
        for (queue, key) in std::mem::take(&mut self.freed) {
            let Some(max) = self.fair_limits.of(&queue, &key) else {
                continue;
            };
            let running = self.running_of(&queue, &key);
            let places = |ahead| fair::places_for(max, running, ahead);
            let woken = self.indexes.first_parked(&queue, &key, places);
            for id in woken {
                let job = self.job(id);
                let turn = job.and_then(|job| self.indexes.turn_of_woken(job, now));
                self.change(id, |job| job.turn = turn);
            }
        }
    }
}
