//! Lanes: the order in which jobs wait for each other. A lane changes in the same transaction as
//! its job. There is only one writer, so nothing changes between a read and the write that depends
//! on it.

use ratchet_core::{JobId, JobState};
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::statements::{Connection, SQL};

/// Returns the state of a job that now enters the lane: blocked if the lane has other jobs, and
/// pending otherwise.
pub(crate) fn state_of_next(conn: Connection<'_>, queue: &str, lane: &str) -> Result<JobState> {
    let exists: bool = conn
        .prepare_cached(&SQL.lane_exists)?
        .query_row([queue, lane], |row| row.get(0))?;
    Ok(if exists {
        JobState::Blocked
    } else {
        JobState::Pending
    })
}

/// Adds a job at the end of a lane.
pub(crate) fn enter(conn: Connection<'_>, id: JobId, queue: &str, lane: &str) -> Result<()> {
    let seq: i64 = conn
        .prepare_cached(&SQL.next_in_lane)?
        .query_row([queue, lane], |row| row.get(0))?;
    conn.prepare_cached(&SQL.enter_lane)?
        .execute(params![id.as_bytes(), queue, lane, seq])?;
    Ok(())
}

/// Adds a requeued job at the end of its lane, and returns the job's new state.
pub(crate) fn enter_again(conn: Connection<'_>, id: JobId) -> Result<JobState> {
    let lane = conn
        .prepare_cached(&SQL.lane_of)?
        .query_row([id.as_bytes()], |row| {
            let (queue, lane) = (row.get_ref(0)?.as_str(), row.get_ref(1)?.as_str());
            Ok(queue
                .ok()
                .map(str::to_owned)
                .zip(lane.ok().map(str::to_owned)))
        })
        .optional()?;
    // A job whose lane cannot be read does not wait for other jobs. It fails when it is claimed.
    let Some((queue, lane)) = lane.flatten() else {
        return Ok(JobState::Pending);
    };
    let state = state_of_next(conn, &queue, &lane)?;
    enter(conn, id, &queue, &lane)?;
    Ok(state)
}

/// Removes an ended job from its lane, and makes the new head of the lane claimable. Does nothing
/// if the job is in no lane.
pub(crate) fn leave(conn: Connection<'_>, id: JobId) -> Result<()> {
    let lane = conn
        .prepare_cached(&SQL.leave_lane)?
        .query_row([id.as_bytes()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })
        .optional()?;
    let Some((queue, lane)) = lane else {
        return Ok(());
    };
    let head = conn
        .prepare_cached(&SQL.lane_head)?
        .query_row([&queue, &lane], |row| row.get::<_, [u8; 16]>(0))
        .optional()?;
    match head {
        Some(head) => conn.prepare_cached(&SQL.promote_job)?.execute([head])?,
        None => conn
            .prepare_cached(&SQL.forget_lane)?
            .execute([queue, lane])?,
    };
    Ok(())
}
