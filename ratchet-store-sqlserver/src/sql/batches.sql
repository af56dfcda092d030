-- Batches.

-- name: create_batch
-- Stores an open batch, unless it exists. [batch.create]
DECLARE @now bigint = {now};
INSERT INTO {schema}.batches (id, created_at)
SELECT CONVERT(binary(16), @P1), @now
WHERE NOT EXISTS (SELECT 1 FROM {schema}.batches WHERE id = CONVERT(binary(16), @P1))

-- name: close_batch
-- Closes an open batch. Returns its new state, and locks it until the transaction ends.
-- [batch.close] Primary key of batches.
DECLARE @closed TABLE (id binary(16) NOT NULL);
UPDATE {schema}.batches SET closed = 1 OUTPUT inserted.id INTO @closed
WHERE id = CONVERT(binary(16), @P1) AND closed = 0;
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT id FROM @closed)

-- name: get_batches
-- Returns the batches with these ids. [batch.read] Primary key of batches.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT id FROM @wanted)

-- name: list_batches
-- Lists the batches with ids below @P1, newest first. [batch.list] Primary key, backwards.
SELECT TOP (@P2) id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id < CONVERT(binary(16), @P1)
ORDER BY id DESC

-- name: lock_batches
-- Returns these batches, and locks them until the transaction ends. [batch.join] [batch.count]
-- [link.enqueue] Primary key of batches. The rows are written unchanged, which locks them on every
-- server.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE batch SET closed = batch.closed
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = wanted.id;
SELECT batch.id, batch.total, batch.succeeded, batch.failed, batch.cancelled, batch.closed,
       batch.created_at, batch.ended_at
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON batch.id = wanted.id

-- name: grow_batches
-- Adds the numbers of new children to the totals of locked open batches. [batch.join] Primary key
-- of batches.
DECLARE @grown TABLE (id binary(16) NOT NULL PRIMARY KEY, count bigint NOT NULL);
INSERT INTO @grown (id, count)
SELECT CONVERT(binary(16), given.id, 2), given.count
FROM OPENJSON(@P1) WITH (id char(32), count bigint) AS given;
UPDATE batch SET total = batch.total + grown.count
FROM @grown AS grown
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = grown.id

-- name: join_batches
-- Records the batches that new jobs are in. [batch.join]
INSERT INTO {schema}.batch_jobs (job, batch)
SELECT CONVERT(binary(16), given.job, 2), CONVERT(binary(16), given.batch, 2)
FROM OPENJSON(@P1) WITH (job char(32), batch char(32)) AS given

-- name: batches_of
-- Returns the batches that jobs are in. [get.whole] Primary key of batch_jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, batch FROM {schema}.batch_jobs
WHERE job IN (SELECT id FROM @wanted)

-- name: count_children
-- Marks these children as counted, except those that already are. Returns the children that it
-- marked, with their batches. [batch.count] Primary key of batch_jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.batch_jobs SET counted = 1
OUTPUT inserted.job, inserted.batch
FROM @wanted AS wanted{seek batch_jobs}
WHERE batch_jobs.job = wanted.id
  AND batch_jobs.counted = 0
OPTION (FORCE ORDER, LOOP JOIN)

-- name: count_in_batches
-- Adds ended children to the counts of their batches. Returns the new state of the batches, and
-- locks them until the transaction ends. [batch.count] Primary key of batches.
DECLARE @tally TABLE (id binary(16) NOT NULL PRIMARY KEY, succeeded bigint NOT NULL,
                      failed bigint NOT NULL, cancelled bigint NOT NULL);
INSERT INTO @tally (id, succeeded, failed, cancelled)
SELECT CONVERT(binary(16), given.id, 2), given.succeeded, given.failed, given.cancelled
FROM OPENJSON(@P1) WITH (id char(32), succeeded bigint, failed bigint, cancelled bigint) AS given;
UPDATE batch
SET succeeded = batch.succeeded + tally.succeeded, failed = batch.failed + tally.failed,
    cancelled = batch.cancelled + tally.cancelled
FROM @tally AS tally
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = tally.id;
SELECT id, total, succeeded, failed, cancelled, closed, created_at, ended_at
FROM {schema}.batches
WHERE id IN (SELECT id FROM @tally)

-- name: end_batches
-- Records when batches ended. [batch.end] Primary key of batches.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE batch SET ended_at = @now
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = wanted.id
WHERE batch.ended_at IS NULL

-- name: purge_batches
-- Deletes the batches that ended longest ago, except those that another transaction has locked.
-- [batch.purge] batches_ended, read in its order. The rows to delete are found by a range of their
-- id, so that locked ones are skipped, and their conditions are checked again.
DECLARE @before bigint = {now} - @P1;
DECLARE @old TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @old (id)
SELECT TOP (@P2) id FROM {schema}.batches WITH (ROWLOCK{passing})
WHERE ended_at IS NOT NULL AND ended_at < @before
ORDER BY ended_at, id;
DELETE batch
FROM @old AS old
INNER LOOP JOIN {schema}.batches AS batch
    WITH (INDEX(batches_pkey), FORCESEEK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range batch.id old.id}
WHERE batch.ended_at < @before
