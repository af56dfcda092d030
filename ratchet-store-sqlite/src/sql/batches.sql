-- Batches.

-- name: create_batch
-- Stores an open batch, unless it exists. [batch.create]
INSERT INTO ratchet_batches (id, created_at) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING

-- name: close_batch
-- Closes an open batch. [batch.close] Uses the primary key of ratchet_batches.
UPDATE ratchet_batches SET closed = 1 WHERE id = ?1 AND closed = 0

-- name: get_batch
-- Returns a batch. [batch.read] Uses the primary key of ratchet_batches.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM ratchet_batches
WHERE id = ?1

-- name: list_batches
-- Lists the batches with ids less than ?1, newest first. [batch.list] Uses the primary key,
-- backwards.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM ratchet_batches
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2

-- name: grow_batch
-- Counts a new job of an open batch. [batch.join] Uses the primary key of ratchet_batches.
UPDATE ratchet_batches SET total = total + 1 WHERE id = ?1 AND closed = 0

-- name: join_batch
-- Records that a new job is in a batch. [batch.join]
INSERT INTO ratchet_batch_jobs (job, batch) VALUES (?1, ?2)

-- name: batch_of
-- Returns the batch that a job is in. [get.whole] Uses the primary key of ratchet_batch_jobs.
SELECT batch FROM ratchet_batch_jobs WHERE job = ?1

-- name: count_child
-- Marks an ended job of a batch as counted, unless it is marked already, and returns the batch.
-- [batch.count] Uses the primary key of ratchet_batch_jobs.
UPDATE ratchet_batch_jobs SET counted = 1 WHERE job = ?1 AND counted = 0 RETURNING batch

-- name: count_in_batch
-- Adds ended jobs to the counts of their batch. [batch.count] Uses the primary key of
-- ratchet_batches.
UPDATE ratchet_batches
SET succeeded = succeeded + ?2, failed = failed + ?3, cancelled = cancelled + ?4
WHERE id = ?1

-- name: end_batch
-- Records when a batch ended. [batch.end] Uses the primary key of ratchet_batches.
UPDATE ratchet_batches SET ended_at = ?2 WHERE id = ?1 AND ended_at IS NULL

-- name: old_batch_exists
-- Returns whether there is a batch to delete. [batch.purge] Uses ratchet_batches_ended.
SELECT EXISTS (
    SELECT 1 FROM ratchet_batches INDEXED BY ratchet_batches_ended
    WHERE ended_at IS NOT NULL AND ended_at < ?1)

-- name: purge_batches
-- Deletes up to ?2 batches that ended before ?1, the earliest first. [batch.purge] Uses
-- ratchet_batches_ended, read in its order.
DELETE FROM ratchet_batches
WHERE id IN (
    SELECT id FROM ratchet_batches INDEXED BY ratchet_batches_ended
    WHERE ended_at IS NOT NULL AND ended_at < ?1
    ORDER BY ended_at, id
    LIMIT ?2)

-- name: purge_membership
-- Deletes a purged job's membership in its batch; the batch itself does not change. [purge.old]
-- Uses the primary key.
DELETE FROM ratchet_batch_jobs WHERE job = ?1
