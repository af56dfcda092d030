-- Batches.

-- name: create_batch
-- Stores an open batch, unless it exists. [batch.create]
INSERT IGNORE INTO {schema}.batches (id, created_at) SELECT $1, {now}

-- name: close_batch
-- Closes an open batch. Returns its new state, and locks it until the transaction ends.
-- [batch.close] Primary key of batches.
BEGIN;
UPDATE {schema}.batches SET closed = TRUE WHERE id = $1 AND NOT closed;
SET @closed = ROW_COUNT();
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id = $1 AND @closed;
COMMIT

-- name: get_batches
-- Returns the batches with these ids. [batch.read] Primary key of batches.
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches FORCE INDEX (PRIMARY)
WHERE id IN ($1)

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
FROM {schema}.batches FORCE INDEX (PRIMARY)
WHERE id IN ($1)
ORDER BY id
FOR UPDATE

-- name: grow_batches
-- Adds the numbers of new children to the totals of locked open batches. [batch.join] Primary key
-- of batches.
UPDATE {rows $1 (id id, count bigint)} AS given
STRAIGHT_JOIN {schema}.batches AS batch FORCE INDEX (PRIMARY) ON batch.id = UNHEX(given.id)
SET batch.total = batch.total + given.count

-- name: join_batches
-- Records the batches that new jobs are in. [batch.join]
INSERT INTO {schema}.batch_jobs (job, batch)
SELECT UNHEX(given.job), UNHEX(given.batch) FROM {rows $1 (job id, batch id)} AS given

-- name: batches_of
-- Returns the batches that jobs are in. [get.whole] Primary key of batch_jobs.
SELECT job, batch FROM {schema}.batch_jobs FORCE INDEX (PRIMARY) WHERE job IN ($1)

-- name: count_children
-- Marks these children as counted, except those that already are. Returns the children that it
-- marked, with their batches. [batch.count] Primary key of batch_jobs.
BEGIN;
SELECT job, batch FROM {schema}.batch_jobs FORCE INDEX (PRIMARY)
WHERE job IN ($1) AND NOT counted
ORDER BY job
FOR UPDATE;
UPDATE {schema}.batch_jobs FORCE INDEX (PRIMARY) SET counted = TRUE
WHERE job IN ($1) AND NOT counted;
COMMIT

-- name: count_in_batches
-- Adds ended children to the counts of their batches. Returns the new state of the batches, and
-- locks them until the transaction ends. [batch.count] Primary key of batches.
SET @given = $1;
BEGIN;
UPDATE {rows @given (id id, succeeded bigint, failed bigint, cancelled bigint)} AS given
STRAIGHT_JOIN {schema}.batches AS batch FORCE INDEX (PRIMARY) ON batch.id = UNHEX(given.id)
SET batch.succeeded = batch.succeeded + given.succeeded,
    batch.failed = batch.failed + given.failed,
    batch.cancelled = batch.cancelled + given.cancelled;
SELECT batch.id, batch.total, batch.succeeded, batch.failed, batch.cancelled, batch.closed,
       batch.created_at, batch.ended_at
FROM {rows @given (id id)} AS given
STRAIGHT_JOIN {schema}.batches AS batch FORCE INDEX (PRIMARY) ON batch.id = UNHEX(given.id);
COMMIT

-- name: end_batches
-- Records when batches ended. [batch.end] Primary key of batches.
UPDATE {schema}.batches FORCE INDEX (PRIMARY) SET ended_at = {now}
WHERE id IN ($1) AND ended_at IS NULL

-- name: purge_batches
-- Deletes the batches that ended longest ago, except those that another transaction has locked.
-- [batch.purge] batches_ended, read in its order.
BEGIN;
SELECT {hex old.id} INTO @old
FROM (SELECT id FROM {schema}.batches FORCE INDEX (batches_ended)
      WHERE ended_at < {now} - $1
      ORDER BY ended_at, id
      LIMIT $2
      FOR UPDATE SKIP LOCKED) AS old;
DELETE batch FROM {list @old} AS old
STRAIGHT_JOIN {schema}.batches AS batch FORCE INDEX (PRIMARY) ON batch.id = UNHEX(old.id);
COMMIT
