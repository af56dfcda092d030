use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::model::{RateAnswer, RateRequest};
use crate::name::Name;
use crate::rate::{MICROS, Taken};
use crate::store::RateStore;

#[async_trait]
impl RateStore for MemoryStore {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        self.call("take", |tables, now| {
            let take = |request: &RateRequest| {
                let known = tables.rates.get(&request.key).copied();
                let taken = request.rate.take(known, now * MICROS);
                match taken {
                    Taken::Granted { tat } | Taken::Wait { tat: Some(tat), .. } => {
                        tables.rates.insert(request.key.clone(), tat);
                    }
                    Taken::Wait { tat: None, .. } => {}
                }
                taken.answer()
            };
            Ok(requests.iter().map(take).collect())
        })
        .await
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        self.call("forget_idle", |tables, now| {
            let idle: Vec<Name> = tables
                .rates
                .iter()
                .filter(|(_, tat)| **tat <= now * MICROS)
                .map(|(key, _)| key.clone())
                .take(limit)
                .collect();
            for key in &idle {
                tables.rates.remove(key);
            }
            Ok(idle.len() as u64)
        })
        .await
    }
}
