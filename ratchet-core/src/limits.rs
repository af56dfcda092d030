//! Limits that hold on every backend. They are checked before anything is written.

use std::time::Duration;

use crate::error::InvalidInput;

/// The most bytes of JSON a payload may have: 256 KiB.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;
/// The most bytes of JSON a result or a checkpoint may have: 64 KiB.
pub const MAX_RESULT_BYTES: usize = 64 * 1024;
/// The most bytes a progress message may have.
pub const MAX_MESSAGE_BYTES: usize = 1_024;
/// The most jobs and batches one job may wait for.
pub const MAX_PARENTS: usize = 100;
/// The most jobs and batches that may wait for each other in a chain within one enqueue. When the
/// first ends, the whole chain may end with it, and a store processes the chain in one transaction.
pub const MAX_GENERATIONS: usize = 1_000;
/// The most bytes the JSON pointer and the value of a condition may have together.
pub const MAX_CONDITION_BYTES: usize = 4_096;
/// The longest delay of a job, at its enqueue or between attempts: 1,000 years of 365 days.
pub const MAX_DELAY: Duration = Duration::from_secs(1_000 * 365 * 86_400);
/// The last due time a job may have, 9999-12-31T23:59:59.999Z, in milliseconds.
pub const MAX_RUN_AT: i64 = 253_402_300_799_999;
/// The most tags a job may have.
pub const MAX_TAGS: usize = 16;
/// The highest version a payload may have.
pub const MAX_PAYLOAD_VERSION: u32 = i32::MAX.cast_unsigned();
/// The most locks that [`Client::locks`](crate::Client::locks) lists.
pub const MAX_LISTED_LOCKS: usize = 1_000;
/// The most jobs one call may enqueue, claim, settle, report, list or act on.
pub const MAX_BATCH: usize = 10_000;

/// Refuses more than [`MAX_BATCH`] items.
///
/// # Errors
/// [`InvalidInput`] naming `field`.
pub fn check_batch(field: &'static str, items: usize) -> Result<(), InvalidInput> {
    if items > MAX_BATCH {
        return Err(InvalidInput::new(
            field,
            format!("asks for {items} items; at most {MAX_BATCH} are allowed at once"),
        ));
    }
    Ok(())
}

/// Refuses 0, and more than [`MAX_BATCH`]. For reads and passes, where zero can only be a mistake.
///
/// # Errors
/// [`InvalidInput`] naming `field`.
pub fn check_limit(field: &'static str, limit: usize) -> Result<(), InvalidInput> {
    if limit == 0 {
        return Err(InvalidInput::new(field, "is 0"));
    }
    check_batch(field, limit)
}
