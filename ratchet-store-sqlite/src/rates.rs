//! [`RateStore`] on SQLite.

use async_trait::async_trait;
use ratchet_core::Result;
use ratchet_core::model::{RateAnswer, RateRequest};
use ratchet_core::rate::{MICROS, Taken};
use ratchet_core::store::RateStore;
use rusqlite::{OptionalExtension, params};

use crate::error::Result as Inner;
use crate::queue::Urgency;
use crate::request::Work;
use crate::statements::SQL;
use crate::store::SqliteStore;

#[async_trait]
impl RateStore for SqliteStore {
    async fn take(&self, requests: &[RateRequest]) -> Result<Vec<RateAnswer>> {
        let requests = requests.to_vec();
        self.write("take", Urgency::Normal, move |work| {
            requests.iter().map(|request| take(work, request)).collect()
        })
        .await
    }

    async fn forget_idle(&self, limit: usize) -> Result<u64> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.write("forget_idle", Urgency::Normal, move |work| {
            let mut forget = work.conn.prepare_cached(&SQL.forget_rates)?;
            Ok(forget.execute(params![work.now * MICROS, limit])? as u64)
        })
        .await
    }
}

fn take(work: &Work<'_>, request: &RateRequest) -> Inner<RateAnswer> {
    let key = request.key.as_str();
    let known: Option<i64> = work
        .conn
        .prepare_cached(&SQL.find_rate)?
        .query_row([key], |row| row.get(0))
        .optional()?;
    let taken = request.rate.take(known, work.now * MICROS);
    if let Taken::Granted { tat } | Taken::Wait { tat: Some(tat), .. } = taken {
        work.conn
            .prepare_cached(&SQL.put_rate)?
            .execute(params![key, tat])?;
    }
    Ok(taken.answer())
}
