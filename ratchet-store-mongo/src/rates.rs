//! [`RateStore`] on MongoDB. Each start takes one command, on servers with and without
//! transactions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{FindOptions, ReturnDocument};
use ratchet_core::model::{RateAnswer, RateRequest};
use ratchet_core::rate::MICROS;
use ratchet_core::store::RateStore;
use ratchet_core::{Rate, Result, time};

use crate::clock::Now;
use crate::error::{Failure, Result as Inner};
use crate::row;
use crate::store::{MongoStore, pause};

#[async_trait]
impl RateStore for MongoStore {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        // If the reply to a granted request is lost, the start is counted and not used. A repeated
        // request would count a second start. So the call is repeated only if the last try had no
        // effect. The repetition keeps the answers that the call already has.
        let answers = Mutex::new(Vec::with_capacity(requests.len()));
        self.call_going_on("take", || self.take_rates(requests, &answers))
            .await?;
        Ok(answers.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        self.call("forget_idle", || self.forget_rates(limit)).await
    }
}

impl MongoStore {
    /// Answers the requests one after the other. Skips those that `answers` already covers, and
    /// appends each new answer.
    async fn take_rates(
        &self,
        requests: &[RateRequest],
        answers: &Mutex<Vec<RateAnswer>>,
    ) -> Inner<()> {
        let answers = || answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = answers().len();
        for request in &requests[answered..] {
            let now = self.now(self.main()).await?;
            let mut tries = 0;
            let answer = loop {
                match self.take_one(request, now).await {
                    // Another call used the key for the first time at the same moment.
                    Err(failure) if failure.is_duplicate() && tries < 100 => {
                        tries += 1;
                        tokio::time::sleep(pause(tries)).await;
                    }
                    answer => break answer?,
                }
            };
            answers().push(answer);
        }
        Ok(())
    }

    async fn take_one(&self, request: &RateRequest, now: Now) -> Inner<RateAnswer> {
        let side = self.main();
        let this = doc! { "_id": request.key.as_str() };
        let fields = doc! { "tat": 1, "granted": 1, "now": micros(now) };
        let row = side
            .rates
            .find_one_and_update(this, taking(&request.rate, now))
            .upsert(true)
            .projection(fields)
            .return_document(ReturnDocument::After)
            .max_time(side.terms.deadline)
            .await?;
        let row = row.ok_or_else(|| Failure::contention("a concurrent call deleted the key"))?;
        if row::flag(&row, "granted") {
            return Ok(RateAnswer::Granted);
        }
        let allowed = row::int(&row, "now")?.saturating_add(request.rate.tolerance_micros());
        let wait = row::int(&row, "tat")?.saturating_sub(allowed);
        let wait = Duration::from_micros(u64::try_from(wait).unwrap_or_default());
        Ok(RateAnswer::Wait(time::whole_millis(wait)))
    }

    /// Deletes up to `limit` keys whose state has expired, and returns how many it deleted. With
    /// the server's clock, uses index `idle`. With the clock of a test, scans the collection,
    /// because documents that were written with such a clock have no `idle_at`. [rate.forget]
    async fn forget_rates(&self, limit: usize) -> Inner<u64> {
        let side = self.main();
        let mut on = side.plain();
        let idle = match self.now(side).await? {
            Now::Server => {
                let now = DateTime::from_millis(self.millis(side).await?);
                doc! { "idle_at": { "$lte": now } }
            }
            Now::Fixed(now) => doc! { "tat": { "$lte": now.saturating_mul(MICROS) } },
        };
        let options = FindOptions::builder()
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .projection(doc! { "_id": 1 })
            .build();
        let mut keys = Vec::new();
        for row in on.find(&side.rates, idle.clone(), options).await? {
            keys.extend(row::text(&row, "_id")?.map(str::to_owned));
        }
        // Check the expiry again, to keep the keys that were used after the read.
        let mut these = idle;
        these.insert("_id", doc! { "$in": keys });
        on.delete_many(&side.rates, these).await
    }
}

fn micros(now: Now) -> Document {
    doc! { "$multiply": [now.expression(), MICROS] }
}

/// Returns the computation of [`Rate::take`] as an update pipeline. So the server runs concurrent
/// requests for a key one after the other. A request that is refused right after another refused
/// request does not change the document. [rate.exact] [rate.refill] [rate.change]
fn taking(rate: &Rate, now: Now) -> Vec<Document> {
    let (interval, tolerance) = (rate.interval_micros(), rate.tolerance_micros());
    let known = doc! { "$ifNull": ["$tat", micros(now)] };
    let tat = doc! { "$max": [known, micros(now)] };
    let last = doc! { "$add": [micros(now), tolerance] };
    let emptied = doc! { "$add": [micros(now), tolerance.saturating_add(interval)] };
    let mut stages = vec![
        doc! { "$set": { "tat": tat, "granted": { "$lte": [{ "$ifNull": ["$tat", 0_i64] }, last] } } },
        doc! { "$set": { "tat": { "$cond": [
            "$granted",
            { "$add": ["$tat", interval] },
            { "$min": ["$tat", emptied] },
        ] } } },
    ];
    // With a test's clock, set no `idle_at`, because the TTL index uses the server's clock.
    if let Now::Server = now {
        stages.push(doc! { "$set": { "idle_at": idle_at() } });
    }
    stages
}

/// Returns an expression for the date from which the state of a key can be deleted. The date is
/// rounded up to milliseconds. [rate.forget]
fn idle_at() -> Document {
    let millis = doc! { "$ceil": { "$divide": ["$tat", MICROS] } };
    doc! { "$toDate": { "$toLong": { "$min": [millis, LAST_DATE] } } }
}

/// The last millisecond of the year 9999, in milliseconds since 1970. The server cannot represent
/// dates much later than this.
const LAST_DATE: i64 = 253_402_300_799_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_rates_are_microseconds() {
        let now = micros(Now::Fixed(7));
        assert_eq!(now, doc! { "$multiply": [7_i64, 1_000_i64] });
        let rate = Rate::new(10, Duration::from_secs(1)).burst(3);
        let text = taking(&rate, Now::Fixed(7))[1].to_string();
        assert!(text.contains("300000") && text.contains("100000"), "{text}");
    }
}
