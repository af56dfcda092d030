//! [`RateStore`] on SQL.

use std::collections::HashMap;

use async_trait::async_trait;
use ratchet_core::model::{RateAnswer, RateRequest};
use ratchet_core::rate::Taken;
use ratchet_core::store::RateStore;
use ratchet_core::{InvalidInput, Rate, Result, time};

use crate::dialect::{Dialect, Query, Row, Run};
use crate::failure::Result as Inner;
use crate::store::SqlStore;

/// Maximum number of rate-limit keys in one statement.
const AT_ONCE: usize = 100;

#[async_trait]
impl<D: Dialect> RateStore for SqlStore<D> {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        // If the reply to a call is lost, its caller does not use the granted start. A repeated
        // call would count a second start.
        self.call_once("take", || self.take_rates(requests)).await
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.call("forget_idle", || async {
            let forget = self.sql().forget_rates.query().bind(limit);
            self.lease().await?.execute(forget).await
        })
        .await
    }
}

impl<D: Dialect> SqlStore<D> {
    async fn take_rates(&self, requests: &[RateRequest]) -> Inner<Vec<RateAnswer>> {
        let mut answers = vec![None; requests.len()];
        let mut left: Vec<usize> = (0..requests.len()).collect();
        while !left.is_empty() {
            // A statement can change a row only once. So a second request for the same key is left
            // to the next statement.
            let mut places: HashMap<&str, usize> = HashMap::new();
            left.retain(|place| {
                let key = requests[*place].key.as_str();
                let next = places.len() < AT_ONCE && !places.contains_key(key);
                if next {
                    places.insert(key, *place);
                }
                !next
            });
            self.take_distinct(requests, &places, &mut answers).await?;
        }
        let missing = || InvalidInput::new("key", "has no answer");
        let answers = answers.into_iter().map(|answer| answer.ok_or_else(missing));
        Ok(answers.collect::<Result<_, _>>()?)
    }

    /// Requests one start for each key in `places`, and writes each answer into `answers`. `places`
    /// maps a key to the index of its request and answer.
    async fn take_distinct(
        &self,
        requests: &[RateRequest],
        places: &HashMap<&str, usize>,
        answers: &mut [Option<RateAnswer>],
    ) -> Inner<()> {
        let rates = || places.values().map(|place| requests[*place].rate);
        let keys: Vec<String> = places.keys().map(ToString::to_string).collect();
        let intervals: Vec<i64> = rates().map(|rate| rate.interval_micros()).collect();
        let tolerances: Vec<i64> = rates().map(|rate| rate.tolerance_micros()).collect();
        let take = self.sql().take_rates.query();
        let take = take.table(&[
            ("key", &keys),
            ("interval", &intervals),
            ("tolerance", &tolerances),
        ]);
        for row in self.lease().await?.rows(take).await? {
            let Some(place) = places.get(row.try_get::<&str>(0)?) else {
                continue;
            };
            let rate = requests[*place].rate;
            answers[*place] = Some(match row.try_get(1)? {
                Some(true) => RateAnswer::Granted,
                // The time stored for this key was later than the rate allows. So the statement
                // reduced it to the latest time that the rate allows, after which the wait is one
                // whole interval.
                Some(false) => whole_interval(&rate),
                None => refused(&rate, row.try_get(2)?, row.try_get(3)?),
            });
        }
        Ok(())
    }
}

fn whole_interval(rate: &Rate) -> RateAnswer {
    RateAnswer::Wait(time::whole_millis(rate.interval()))
}

/// Returns the wait after a refused start. Computes it from `known`, the time that was stored for
/// the key when the statement began.
///
/// If `known` is missing or would allow a start, another call has changed the key in the meantime.
/// Then returns the longest possible wait, which is one whole interval.
fn refused(rate: &Rate, known: Option<i64>, now: i64) -> RateAnswer {
    match known.map(|tat| rate.take(Some(tat), now)) {
        Some(taken @ Taken::Wait { .. }) => taken.answer(),
        Some(Taken::Granted { .. }) | None => whole_interval(rate),
    }
}
