-- Batches.

-- name: create_batch
-- Stores an open batch, unless it exists. [batch.create]
INSERT INTO {schema}.batches (id, created_at) SELECT $1, {now} ON CONFLICT (id) DO NOTHING

-- name: close_batch
-- Closes an open batch. Returns its new state, and locks it until the transaction ends.
-- [batch.close] Primary key of batches.
UPDATE {schema}.batches SET closed = true
WHERE id = $1 AND NOT closed
RETURNING id, total, succeeded, failed, cancelled, closed, created_at, ended_at

-- name: get_batches
-- Returns the batches with these ids. [batch.read] Primary key of batches.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id = ANY($1::uuid[])

-- name: list_batches
-- Lists the batches with ids below $1, newest first. [batch.list] Primary key, backwards.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id < $1
ORDER BY id DESC
LIMIT $2

-- name: lock_batches
-- Returns these batches, and locks them until the transaction ends. [batch.join] [batch.count]
-- [link.enqueue] Primary key of batches; locked in order of id, as in every call.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id = ANY($1::uuid[])
ORDER BY id
FOR NO KEY UPDATE

-- name: grow_batches
-- Adds the numbers of new children to the totals of locked open batches. [batch.join] Primary key
-- of batches.
UPDATE {schema}.batches AS batch SET total = batch.total + grown.count
FROM unnest($1::uuid[], $2::bigint[]) AS grown (id, count)
WHERE batch.id = grown.id

-- name: join_batches
-- Records the batches that new jobs are in. [batch.join]
INSERT INTO {schema}.batch_jobs (job, batch)
SELECT job, batch FROM unnest($1::uuid[], $2::uuid[]) AS new (job, batch)

-- name: batches_of
-- Returns the batches that jobs are in. [get.whole] Primary key of batch_jobs.
SELECT job, batch FROM {schema}.batch_jobs WHERE job = ANY($1::uuid[])

-- name: count_children
-- Marks these children as counted, except those that already are. Returns the children that it
-- marked, with their batches. [batch.count] Primary key of batch_jobs.
UPDATE {schema}.batch_jobs SET counted = true
WHERE job = ANY($1::uuid[]) AND NOT counted
RETURNING job, batch

-- name: count_in_batches
-- Adds ended children to the counts of their batches. Returns the new state of the batches, and
-- locks them until the transaction ends. [batch.count] Primary key of batches.
UPDATE {schema}.batches AS batch
SET succeeded = batch.succeeded + tally.succeeded, failed = batch.failed + tally.failed,
    cancelled = batch.cancelled + tally.cancelled
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])
    AS tally (id, succeeded, failed, cancelled)
WHERE batch.id = tally.id
RETURNING batch.id, batch.total, batch.succeeded, batch.failed, batch.cancelled, batch.closed,
          batch.created_at, batch.ended_at

-- name: end_batches
-- Records when batches ended. [batch.end] Primary key of batches.
UPDATE {schema}.batches SET ended_at = {now} WHERE id = ANY($1::uuid[]) AND ended_at IS NULL

-- name: purge_batches
-- Deletes the batches that ended longest ago, except those that another transaction has locked.
-- [batch.purge] batches_ended, read in its order.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
old AS MATERIALIZED (
    SELECT id FROM {schema}.batches
    WHERE ended_at IS NOT NULL AND ended_at < (SELECT now FROM clock) - $1::bigint
    ORDER BY ended_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.batches WHERE id = ANY(ARRAY(SELECT id FROM old))
