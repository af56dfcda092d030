use async_trait::async_trait;

use super::tables::Tables;
use super::{Command, MemoryStore};
use crate::error::Result;
use crate::model::{RateAnswer, RateRequest};
use crate::name::Name;
use crate::rate::{MICROS, Taken};
use crate::store::RateStore;

#[async_trait]
impl RateStore for MemoryStore {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        self.write(Command::Take(requests.into())).await
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        self.write(Command::ForgetIdle { limit }).await
    }
}

impl Tables {
    pub(super) fn take(&mut self, requests: &[RateRequest], now: i64) -> Vec<RateAnswer> {
        let take = |request: &RateRequest| {
            let known = self.rates.get(&request.key).copied();
            let taken = request.rate.take(known, now * MICROS);
            match taken {
                Taken::Granted { tat } | Taken::Wait { tat: Some(tat), .. } => {
                    self.rates.insert(request.key.clone(), tat);
                }
                Taken::Wait { tat: None, .. } => {}
            }
            taken.answer()
        };
        requests.iter().map(take).collect()
    }

    /// Returns the keys whose rates no longer hold anything back.
    pub(super) fn idle(&self, limit: usize, now: i64) -> Vec<Name> {
        self.rates
            .iter()
            .filter(|(_, tat)| **tat <= now * MICROS)
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect()
    }

    pub(super) fn forget_idle(&mut self, limit: usize, now: i64) -> u64 {
        let idle = self.idle(limit, now);
        for key in &idle {
            self.rates.remove(key);
        }
        idle.len() as u64
    }
}
