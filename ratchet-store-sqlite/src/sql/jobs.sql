-- Jobs: stores, reads, changes and deletes them.

-- name: enqueue_job
-- Stores a job, unless its id exists. [enqueue.created] [enqueue.repeat] [enqueue.due] [lane.head]
-- [fair.turn] Uses the primary key of ratchet_jobs.
INSERT INTO ratchet_jobs (id, state, route, priority, run_at, data, flags, created_at, fair_key,
                          fair_cost, turn, queue)
VALUES (?1, ?8, ?2, ?3, ?4, ?5, ?6, ?7, ?9, ?10, ?11, ?12)
ON CONFLICT (id) DO NOTHING

-- name: enqueue_data
-- Stores the data of a job that is fixed at its enqueue. [enqueue.created] [recurring.origin]
-- [claim.version]
INSERT INTO ratchet_job_data (id, payload, retry, timeout, stall_timeout,
                              unique_key, idempotency_key, lane, traceparent, tracestate,
                              recurring, slot, payload_version)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)

-- name: last_data
-- Returns the last id of ratchet_job_data; the next enqueue continues after it. Uses the primary
-- key of ratchet_job_data.
SELECT coalesce(max(id), 0) FROM ratchet_job_data

-- name: find_idempotency_key
-- Returns the first job with an idempotency key, unless the key is free again at ?2.
-- [keys.idempotency] [keys.expire] Uses the primary key.
SELECT job FROM ratchet_idempotency_keys
WHERE key = ?1 AND (expires_at IS NULL OR expires_at > ?2)

-- name: find_unique_key
-- Returns the unfinished job that has a unique key. [keys.unique] [requeue.key] Uses the primary
-- key.
SELECT job FROM ratchet_unique_keys WHERE key = ?1

-- name: keep_idempotency_key
-- Stores an idempotency key with its first job, until ?4 (NULL: for ever). Replaces a key that is
-- free again. [keys.idempotency] [keys.expire] [keys.race]
INSERT INTO ratchet_idempotency_keys (key, job, reserved_at, expires_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (key) DO UPDATE
SET job = excluded.job, reserved_at = excluded.reserved_at, expires_at = excluded.expires_at

-- name: has_free_keys
-- Returns whether idempotency keys are free again at ?1. Uses ratchet_idempotency_keys_expiry.
SELECT EXISTS (SELECT 1 FROM ratchet_idempotency_keys WHERE expires_at <= ?1)

-- name: forget_keys
-- Deletes up to ?2 idempotency keys that are free again at ?1. Uses
-- ratchet_idempotency_keys_expiry, read in its order.
DELETE FROM ratchet_idempotency_keys
WHERE key IN (SELECT key FROM ratchet_idempotency_keys WHERE expires_at <= ?1
              ORDER BY expires_at LIMIT ?2)

-- name: take_unique_key
-- Stores a free unique key with the job that gets it. [keys.unique] [keys.race] [requeue.key]
INSERT INTO ratchet_unique_keys (key, job) VALUES (?1, ?2)

-- name: free_unique_key
-- Releases the unique key of a job that ends, if the job still holds it. [settle.keys]
-- [cancel.waiting] Uses the primary keys of ratchet_unique_keys and ratchet_job_data.
DELETE FROM ratchet_unique_keys
WHERE key = (SELECT unique_key FROM ratchet_job_data WHERE id = ?1) AND job = ?2

-- name: unique_key_of
-- Returns the unique key with which a job was enqueued. [requeue.key] Uses the primary key of
-- ratchet_job_data.
SELECT unique_key FROM ratchet_job_data WHERE id = ?1

-- name: find_holder
-- Returns what an enqueue needs to know about the job that has a unique key. [keys.replace]
-- [keys.debounce] [keys.follow] [keys.kind] [expiry.replace] [fair.limit.wait] Uses primary keys.
SELECT job.state, route.kind, job.run_at, job.created_at, job.data, job.flags, job.route,
       CASE WHEN job.state = 0 AND job.turn < 4611686018427387904
                 AND EXISTS (SELECT 1 FROM ratchet_fair_limits) THEN job.fair_key END
FROM ratchet_jobs AS job
JOIN ratchet_routes AS route ON route.id = job.route
WHERE job.id = ?1 AND job.flags & {unique_key}

-- name: replace_payload
-- Replaces the payload of a waiting job. [keys.replace] Uses the primary key of ratchet_job_data.
UPDATE ratchet_job_data SET payload = ?2, payload_version = ?3 WHERE id = ?1

-- name: clear_notes
-- Deletes the checkpoint and the progress of a job. [keys.replace] Uses the primary key of
-- ratchet_job_notes.
UPDATE ratchet_job_notes SET percent = NULL, message = NULL, checkpoint = NULL WHERE job = ?1

-- name: drop_unique_key
-- Deletes the unique key of a job that has released it. [keys.follow] Uses the primary key of
-- ratchet_job_data.
UPDATE ratchet_job_data SET unique_key = NULL WHERE id = ?1

-- name: drop_key_flag
-- Records that a job has no unique key. [keys.follow] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET flags = flags - (flags & {unique_key}) WHERE id = ?1

-- name: job_exists
-- Returns whether a job is stored. [enqueue.repeat] Uses the primary key of ratchet_jobs.
SELECT EXISTS (SELECT 1 FROM ratchet_jobs WHERE id = ?1)

-- name: tag_job
-- Adds a tag to a stored job. [tag.set] Uses the primary key of ratchet_job_tags.
INSERT INTO ratchet_job_tags (tag, job) VALUES (?1, ?2) ON CONFLICT DO NOTHING

-- name: get_job
-- Returns a job with all its data, or without the parts that may be large. [get.whole]
-- [get.outline] Uses primary keys.
SELECT job.id, job.state, job.route, job.priority, job.run_at, job.created_at, job.finished_at,
       job.attempts, job.crash_count, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
       data.id, CASE WHEN ?2 THEN data.payload ELSE 'null' END, data.retry,
       data.timeout, data.stall_timeout, data.unique_key, data.idempotency_key,
       data.traceparent, data.tracestate,
       notes.percent, notes.message, CASE WHEN ?2 THEN notes.checkpoint END,
       CASE WHEN ?2 THEN notes.result END, notes.last_error,
       data.lane, data.recurring, data.slot,
       CASE WHEN job.flags & {tags} THEN
           (SELECT group_concat(tagged.tag, char(10)) FROM ratchet_job_tags AS tagged
            WHERE tagged.job = job.id)
       END,
       data.payload_version, job.flags, job.fair_key, job.fair_cost, job.queue
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_data AS data ON data.id = job.data
LEFT JOIN ratchet_job_notes AS notes ON notes.job = job.id
WHERE job.id = ?1

-- name: history
-- Returns the ended claims of a job. [history.order] Uses primary keys. The successful claim, which
-- is the last one, is recorded in the job's own row.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM ratchet_attempts
WHERE job = ?1
UNION ALL
SELECT claim_seq, node, coalesce(claimed_at, finished_at), finished_at, ran_for_us, 0, NULL
FROM ratchet_jobs
WHERE id = ?1 AND state = 4
ORDER BY 1

-- name: read_state
-- Returns what an action needs to know about a job, with its fair key if the job is in turn and any
-- key has a limit. [act.respond] [fair.limit.wait] Uses the primary key of ratchet_jobs.
SELECT state, data, flags, route,
       CASE WHEN state = 0 AND turn < 4611686018427387904
                 AND EXISTS (SELECT 1 FROM ratchet_fair_limits) THEN fair_key END
FROM ratchet_jobs WHERE id = ?1

-- name: change_state
-- Moves a waiting job from one state to another, without a turn. [act.respond] [cancel.waiting]
-- [pause.job] [fair.act] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = ?3, finished_at = ?4, turn = NULL WHERE id = ?1 AND state = ?2

-- name: request_cancel
-- Requests the cancellation of a running job. [cancel.running] Uses the primary key of
-- ratchet_jobs.
UPDATE ratchet_jobs SET cancel_requested = 1 WHERE id = ?1 AND state = 3

-- name: requeue_job
-- Moves a dead letter to a waiting state, due now, with counters reset. [requeue.fresh]
-- [lane.requeue] Uses the primary key.
UPDATE ratchet_jobs SET state = ?3, run_at = ?2, attempts = 0, crash_count = 0, finished_at = NULL
WHERE id = ?1 AND state = 5

-- name: reschedule_job
-- Makes a waiting job due at a time. A job that was due at another time loses its turn.
-- [reschedule.job] [lane.reschedule] [keys.debounce] [fair.act] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET run_at = ?2, turn = CASE WHEN run_at = ?2 THEN turn END
WHERE id = ?1 AND state IN (0, 1, 2)

-- name: set_priority
-- Sets the priority of an unfinished job. A job that had another priority loses its turn.
-- [priority.job] [fair.act] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET priority = ?2, turn = CASE WHEN priority = ?2 THEN turn END
WHERE id = ?1 AND state < 4

-- name: release_job
-- Makes a blocked job claimable; for a job that waits for nothing any more. [link.release]
-- [signal.deliver] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = 0, run_at = max(run_at, ?2) WHERE id = ?1 AND state = 1

-- name: keep_error
-- Stores the error of a job's last attempt. [settle.effect] Uses the primary key of
-- ratchet_job_notes.
INSERT INTO ratchet_job_notes (job, last_error) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET last_error = excluded.last_error

-- name: clear_error
-- Clears the error of a job's last attempt. [requeue.fresh] Uses the primary key of
-- ratchet_job_notes.
UPDATE ratchet_job_notes SET last_error = NULL WHERE job = ?1

-- name: purge_due
-- Returns up to ?3 jobs of a state that finished before ?2, the earliest first, except parents that
-- unfinished children may still read. [purge.old] [purge.awaited] Uses ratchet_jobs_finished, read
-- in its order, ratchet_links_parent and primary keys.
SELECT job.id, job.data, job.flags
FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_finished
WHERE job.state = ?1 AND job.state >= 4 AND job.finished_at < ?2
  AND (job.flags & {children} = 0 OR NOT EXISTS (
      SELECT 1 FROM ratchet_links AS link CROSS JOIN ratchet_jobs AS child ON child.id = link.child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4))
ORDER BY job.finished_at, job.id
LIMIT ?3

-- name: purge_job
-- Deletes a job. [purge.old] [delete.job] [purge.keys] Uses the primary key of ratchet_jobs.
DELETE FROM ratchet_jobs WHERE id = ?1

-- name: purge_data
-- Deletes the data of a job that was fixed at its enqueue. [purge.old] [delete.job] Uses the
-- primary key of ratchet_job_data.
DELETE FROM ratchet_job_data WHERE id = ?1

-- name: purge_notes
-- Deletes the result, progress, checkpoint and error of a job. [purge.old] [delete.job] Uses the
-- primary key of ratchet_job_notes.
DELETE FROM ratchet_job_notes WHERE job = ?1

-- name: purge_attempts
-- Deletes the history of a job. [purge.old] [delete.job] Uses the primary key of ratchet_attempts.
DELETE FROM ratchet_attempts WHERE job = ?1

-- name: purge_tags
-- Deletes the tags of a job. [purge.old] [delete.job] Uses ratchet_job_tags_of_job.
DELETE FROM ratchet_job_tags WHERE job = ?1

-- name: put_expiry
-- Stores when a job expires, in place of an earlier expiry. [expiry.enqueue] [expiry.replace] Uses
-- the primary key of ratchet_expiries.
INSERT INTO ratchet_expiries (job, expires_at) VALUES (?1, ?2)
ON CONFLICT (job) DO UPDATE SET expires_at = excluded.expires_at

-- name: flag_expiry
-- Marks a stored job as one with an expiry. [expiry.replace] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET flags = flags | {expires} WHERE id = ?1

-- name: find_expiry
-- Returns when a job expires. [expiry.enqueue] [expiry.claim] [expiry.kept] Uses the primary key of
-- ratchet_expiries.
SELECT expires_at FROM ratchet_expiries WHERE job = ?1

-- name: overdue_expiries
-- Returns the waiting jobs that have expired (ratchet_core::model::is_expired), the longest overdue
-- first. [expiry.pass] [expiry.limit] Uses ratchet_expiries_open, read in its order, and the
-- primary key of ratchet_jobs.
SELECT expiry.job
FROM ratchet_expiries AS expiry INDEXED BY ratchet_expiries_open
CROSS JOIN ratchet_jobs AS job
WHERE expiry.closed = 0 AND expiry.expires_at <= ?1 AND job.id = expiry.job AND job.state < 3
ORDER BY expiry.expires_at, expiry.job
LIMIT ?2

-- name: close_expiry
-- Marks the expiry of a job that has ended, so that no pass looks at it again. [expiry.kept] Uses
-- the primary key of ratchet_expiries.
UPDATE ratchet_expiries SET closed = 1 WHERE job = ?1

-- name: drop_expiry
-- Deletes the expiry of a job that has begun, was requeued, has lost its expiry or is deleted.
-- [expiry.begun] [expiry.requeue] [expiry.replace] [purge.whole] Uses the primary key of
-- ratchet_expiries.
DELETE FROM ratchet_expiries WHERE job = ?1
