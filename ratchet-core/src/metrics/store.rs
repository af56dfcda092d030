//! Metrics of calls of the store.

use std::time::Duration;

use super::catalog::{
    SETTLE, SETTLE_BATCH, SETTLE_RETRIES, SETTLEMENTS_REFUSED, STORE_BACKOFF, STORE_CALL,
    STORE_CALLS,
};
use crate::error::{Result, StoreErrorKind};

/// Counts a store call by its outcome, and records its duration.
pub(crate) fn store_call<T>(operation: &'static str, took: Duration, answer: &Result<T>) {
    let result = match answer {
        Ok(_) => "ok",
        Err(error) => name_of(error.kind()),
    };
    let values = [operation.into(), result.into()];
    STORE_CALLS.counter(values).increment(1);
    STORE_CALL.histogram([operation.into()]).record(took);
}

/// Records the delay before a failed store call is retried. `who` names the caller, such as a loop.
pub(crate) fn store_backoff(who: &'static str, delay: Duration) {
    STORE_BACKOFF.histogram([who.into()]).record(delay);
}

/// Records the number of settlements and the duration of a successful settle call.
pub(crate) fn settled(batch: usize, took: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    SETTLE_BATCH.histogram([]).record(batch as f64);
    SETTLE.histogram([]).record(took);
}

/// Counts a settle call that failed, by the kind of the error.
pub(crate) fn settle_failed(why: StoreErrorKind) {
    SETTLE_RETRIES.counter([name_of(why).into()]).increment(1);
}

/// Counts a settlement that the store rejected permanently.
pub(crate) fn settlement_refused() {
    SETTLEMENTS_REFUSED.counter([]).increment(1);
}

const fn name_of(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::Unavailable => "unavailable",
        StoreErrorKind::Timeout => "timeout",
        StoreErrorKind::Contention => "contention",
        StoreErrorKind::Full => "full",
        StoreErrorKind::ReadOnly => "read_only",
        StoreErrorKind::Invalid => "invalid",
        StoreErrorKind::Misconfigured => "misconfigured",
        StoreErrorKind::SchemaMismatch(_) => "schema_mismatch",
        StoreErrorKind::Corrupt => "corrupt",
        StoreErrorKind::Other => "other",
    }
}
