//! Stores with a defect in rates.

use async_trait::async_trait;
use ratchet_core::model::{RateAnswer, RateRequest};
use ratchet_core::rate::{MICROS, Taken};
use ratchet_core::store::{NodeStore, RateStore};
use ratchet_core::{Name, Result, time};

use crate::sabotage::{Sabotage, Sabotaged};

#[async_trait]
impl RateStore for Sabotaged {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        let mut asked = requests.to_vec();
        match self.how {
            Sabotage::GrantsEveryStart => {
                return Ok(vec![RateAnswer::Granted; requests.len()]);
            }
            Sabotage::SharesOneRate => {
                for request in &mut asked {
                    request.key = Name::new("key", "one")?;
                }
            }
            Sabotage::ForgetsRatesInUse => {
                let generation = self.memory().generation;
                for request in &mut asked {
                    request.key = Name::new("key", format!("{} {generation}", request.key))?;
                }
            }
            Sabotage::RefillsByTheProcessClock => {
                let now = time::to_millis(time::wall_clock());
                return Ok(requests.iter().map(|one| self.take_at(one, now)).collect());
            }
            Sabotage::ForgetsRatesEarly => {
                let now = time::to_millis(self.inner.database_time().await?);
                return Ok(requests.iter().map(|one| self.take_at(one, now)).collect());
            }
            Sabotage::LooksAtRatesBeforeItTakes => {
                let mut answers = Vec::new();
                for request in requests {
                    answers.push(self.look_and_take(request).await?);
                }
                return Ok(answers);
            }
            _ => {}
        }
        self.inner.take(&asked).await
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        if self.is(Sabotage::ForgetsRatesEarly) {
            return self.forget_early(limit).await;
        }
        let forgotten = self.inner.forget_idle(limit).await?;
        self.memory().generation += 1;
        Ok(forgotten)
    }
}

impl Sabotaged {
    fn take_at(&self, request: &RateRequest, now: i64) -> RateAnswer {
        let known = self.memory().rates.get(&request.key).copied();
        let taken = request.rate.take(known, now * MICROS);
        if let Taken::Granted { tat } = taken {
            self.memory().rates.insert(request.key.clone(), tat);
        }
        taken.answer()
    }

    /// Reads a rate's state, lets a concurrent call use one start of the rate, and then decides by
    /// the outdated state.
    async fn look_and_take(&self, request: &RateRequest) -> Result<RateAnswer> {
        let now = time::to_millis(self.inner.database_time().await?);
        let known = self.memory().rates.get(&request.key).copied();
        self.let_another_look(&request.key).await;
        let taken = request.rate.take(known, now * MICROS);
        if let Taken::Granted { tat } = taken {
            self.memory().rates.insert(request.key.clone(), tat);
        }
        Ok(taken.answer())
    }
}
