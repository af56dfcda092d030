-- Stores, reads, changes and deletes jobs.

-- name: enqueue_jobs
-- Stores new jobs without keys. If one of them exists, fails with a duplicate key and stores none.
-- Returns how many it stored. Stores nothing if @P2, the largest of the jobs' routes, is missing or
-- has another stamp than @P3. A NULL time means now plus the delay. [enqueue.created] [enqueue.due]
-- [claim.version]
DECLARE @now bigint = {now};
DECLARE @new TABLE (id binary(16) NOT NULL, route int NOT NULL, priority smallint NOT NULL,
                    flags smallint NOT NULL, run_at bigint NULL, delay bigint NOT NULL,
                    payload nvarchar(max) NOT NULL, retry nvarchar(max) NULL, timeout bigint NULL,
                    stall_timeout bigint NULL, traceparent nvarchar(max) NULL,
                    tracestate nvarchar(max) NULL, payload_version int NULL);
INSERT INTO @new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
                  traceparent, tracestate, payload_version)
SELECT CONVERT(binary(16), given.id, 2), given.route, given.priority, given.flags, given.run_at,
       given.delay, {text given.payload}, {text given.retry}, given.timeout, given.stall_timeout,
       {text given.traceparent}, {text given.tracestate}, given.payload_version
FROM OPENJSON(@P1) WITH (id char(32), route int, priority smallint, flags smallint, run_at bigint,
                         delay bigint, payload {long}, retry {long}, timeout bigint,
                         stall_timeout bigint, traceparent {long}, tracestate {long},
                         payload_version int) AS given
WHERE EXISTS (SELECT 1 FROM {schema}.routes WHERE id = @P2 AND stamp = @P3);
BEGIN TRANSACTION;
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version)
SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version
FROM @new ORDER BY id;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
SELECT id, 0, route, priority, flags, COALESCE(run_at, @now + delay), @now FROM @new ORDER BY id;
COMMIT TRANSACTION;
SELECT COUNT_BIG(*) FROM @new

-- name: enqueue_keyed
-- Stores jobs that may have keys, lanes, recurring definitions and tags, except jobs whose ids
-- exist, and acquires the keys. Returns how many it stored, and the number of given jobs. If a
-- concurrent call acquired a key or stored an id, the whole statement fails and stores nothing. If
-- @P3, the largest of the jobs' routes, is missing or has another stamp than @P4, stores nothing
-- and returns 0 and 0. A NULL time means now plus the delay. [enqueue.created] [enqueue.repeat]
-- [enqueue.due] [keys.race] [enqueue.atomic] [lane.head] [recurring.origin] [tag.set]
-- [claim.version]
DECLARE @now bigint = {now};
DECLARE @new TABLE (id binary(16) NOT NULL, route int NOT NULL, priority smallint NOT NULL,
                    flags smallint NOT NULL, run_at bigint NULL, delay bigint NOT NULL,
                    payload nvarchar(max) NOT NULL, retry nvarchar(max) NULL, timeout bigint NULL,
                    stall_timeout bigint NULL, traceparent nvarchar(max) NULL,
                    tracestate nvarchar(max) NULL, payload_version int NULL,
                    unique_key nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
                    idempotency_key nvarchar(128) COLLATE Latin1_General_BIN2 NULL,
                    lane nvarchar(128) COLLATE Latin1_General_BIN2 NULL, state smallint NOT NULL,
                    recurring nvarchar(128) COLLATE Latin1_General_BIN2 NULL, slot bigint NULL,
                    unique_for bigint NULL);
DECLARE @tagged TABLE (job binary(16) NOT NULL,
                       tag nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
DECLARE @stored TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
                  traceparent, tracestate, payload_version, unique_key, idempotency_key, lane, state,
                  recurring, slot, unique_for)
SELECT CONVERT(binary(16), given.id, 2), given.route, given.priority, given.flags, given.run_at,
       given.delay, {text given.payload}, {text given.retry}, given.timeout, given.stall_timeout,
       {text given.traceparent}, {text given.tracestate}, given.payload_version,
       {name given.unique_key}, {name given.idempotency_key}, {name given.lane}, given.state,
       {name given.recurring}, given.slot, given.unique_for
FROM OPENJSON(@P1) WITH (id char(32), route int, priority smallint, flags smallint, run_at bigint,
                         delay bigint, payload {long}, retry {long}, timeout bigint,
                         stall_timeout bigint, traceparent {long}, tracestate {long},
                         payload_version int, unique_key nvarchar(256),
                         idempotency_key nvarchar(256), lane nvarchar(256), state smallint,
                         recurring nvarchar(256), slot bigint, unique_for bigint) AS given
WHERE EXISTS (SELECT 1 FROM {schema}.routes WHERE id = @P3 AND stamp = @P4);
INSERT INTO @tagged (job, tag)
SELECT CONVERT(binary(16), given.job, 2), {name given.tag}
FROM OPENJSON(@P2) WITH (job char(32), tag nvarchar(256)) AS given;
BEGIN TRANSACTION;
INSERT INTO {schema}.idempotency_keys ([key], job, reserved_at, expires_at)
SELECT idempotency_key, id, @now, @now + unique_for FROM @new WHERE idempotency_key IS NOT NULL
ORDER BY idempotency_key;
INSERT INTO {schema}.unique_keys ([key], job)
SELECT unique_key, id FROM @new WHERE unique_key IS NOT NULL ORDER BY unique_key;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
OUTPUT inserted.id INTO @stored
SELECT new.id, new.state, new.route, new.priority, new.flags, COALESCE(new.run_at, @now + new.delay),
       @now
FROM @new AS new
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job WHERE job.id = new.id);
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version, unique_key, idempotency_key, lane, recurring, slot)
SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version,
       unique_key, idempotency_key, lane, recurring, slot
FROM @new AS new
WHERE EXISTS (SELECT 1 FROM @stored AS stored WHERE stored.id = new.id)
ORDER BY id;
INSERT INTO {schema}.job_tags (job, tag)
SELECT job, tag FROM @tagged WHERE job IN (SELECT id FROM @stored);
COMMIT TRANSACTION;
SELECT (SELECT COUNT_BIG(*) FROM @stored), (SELECT COUNT_BIG(*) FROM @new)

-- name: find_keys
-- Returns which of these jobs are stored (0), and which jobs have these idempotency keys (1) and
-- unique keys (2). The idempotency keys that are free again have 3. [enqueue.repeat]
-- [keys.idempotency] [keys.expire] [keys.unique] Primary keys.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DECLARE @idempotency TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @idempotency (name) SELECT DISTINCT {name value} FROM OPENJSON(@P2);
DECLARE @unique TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @unique (name) SELECT DISTINCT {name value} FROM OPENJSON(@P3);
SELECT 0 AS what, CAST(NULL AS nvarchar(128)) COLLATE Latin1_General_BIN2 AS [key], id AS job
FROM {schema}.jobs
WHERE id IN (SELECT id FROM @wanted)
UNION ALL
SELECT CASE WHEN expires_at <= @now THEN 3 ELSE 1 END, [key], job FROM {schema}.idempotency_keys
WHERE [key] IN (SELECT name FROM @idempotency)
UNION ALL
SELECT 2, [key], job FROM {schema}.unique_keys
WHERE [key] IN (SELECT name FROM @unique)

-- name: take_unique_keys
-- Acquires those of these unique keys that are free. If several jobs want a key, the first one
-- given gets it. If a concurrent call acquires a key, the statement fails with a duplicate key.
-- [keys.unique] [keys.race] [requeue.key]
DECLARE @wanted TABLE (place int NOT NULL PRIMARY KEY, job binary(16) NOT NULL,
                       name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
INSERT INTO @wanted (place, job, name)
SELECT given.place, CONVERT(binary(16), given.job, 2), {name given.name}
FROM OPENJSON(@P1) WITH (name nvarchar(256), job char(32), place int) AS given;
INSERT INTO {schema}.unique_keys ([key], job)
SELECT first.name, first.job
FROM (SELECT name, job, ROW_NUMBER() OVER (PARTITION BY name ORDER BY place) AS turn
      FROM @wanted) AS first
WHERE first.turn = 1
  AND NOT EXISTS (SELECT 1 FROM {schema}.unique_keys AS held WHERE held.[key] = first.name)

-- name: find_unique_keys
-- Returns the unfinished jobs that have these unique keys. [requeue.key] Primary key of
-- unique_keys.
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
SELECT [key], job FROM {schema}.unique_keys
WHERE [key] IN (SELECT name FROM @wanted)

-- name: get_jobs
-- Returns jobs without their tags (tags_of), with the parts that may be large only if @P2.
-- [get.whole] [get.outline] Primary keys.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, job.state, job.route, job.priority, job.run_at, job.created_at, job.finished_at,
       job.attempts, job.crash_count, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
       data.id, CASE WHEN @P2 = 1 THEN data.payload ELSE N'null' END, data.retry,
       data.timeout, data.stall_timeout, data.unique_key, data.idempotency_key,
       data.traceparent, data.tracestate,
       notes.[percent], notes.message, CASE WHEN @P2 = 1 THEN notes.[checkpoint] END,
       CASE WHEN @P2 = 1 THEN notes.result END, notes.last_error,
       data.lane, data.recurring, data.slot, CAST(NULL AS nvarchar(max)), data.payload_version, job.flags,
       route.queue, route.kind, route.capability, route.permit, CAST(NULL AS nvarchar(128)), CAST(NULL AS int)
FROM {schema}.jobs AS job
LEFT JOIN {schema}.routes AS route ON route.id = job.route
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
WHERE job.id IN (SELECT id FROM @wanted)

-- name: tags_of
-- Returns the tags of jobs. [get.whole] [tag.set] job_tags_of_job.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, tag FROM {schema}.job_tags
WHERE job IN (SELECT id FROM @wanted)

-- name: history
-- Returns the ended claims of a job. [history.order] Primary keys. The claim that succeeded, the
-- last one, is in the row of the job.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM {schema}.attempts
WHERE job = CONVERT(binary(16), @P1)
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us,
       CAST(0 AS smallint), CAST(NULL AS nvarchar(max))
FROM {schema}.jobs
WHERE id = CONVERT(binary(16), @P1) AND state + 0 = 4
ORDER BY seq

-- name: histories
-- Returns the ended claims of jobs, as history does for one. [archive.move]
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error, job
FROM {schema}.attempts
WHERE job IN (SELECT id FROM @wanted)
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us,
       CAST(0 AS smallint), CAST(NULL AS nvarchar(max)), id
FROM {schema}.jobs
WHERE id IN (SELECT id FROM @wanted) AND state + 0 = 4
ORDER BY job, seq

-- name: read_state
-- Returns the state, flags and unique keys of jobs, and locks the jobs until the transaction ends.
-- [act.respond] Primary keys. The rows are written unchanged, which locks them on every server.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET flags = job.flags
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id;
SELECT job.id, job.state, job.flags, data.unique_key
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = wanted.id
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & {unique_key} = {unique_key}
ORDER BY job.id

-- name: change_state
-- Moves waiting jobs to other states. Jobs that end release their unique keys and no longer wait
-- for signals (flags: 1 has a key, 8 waits for other jobs or for a signal). Must run in a
-- transaction. [act.respond] [cancel.waiting] [pause.job] [signal.late] Primary keys.
DECLARE @now bigint = {now};
DECLARE @change TABLE (job binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL);
DECLARE @moved TABLE (id binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL,
                      flags smallint NOT NULL);
INSERT INTO @change (job, state)
SELECT CONVERT(binary(16), given.job, 2), given.state
FROM OPENJSON(@P1) WITH (job char(32), state smallint) AS given;
UPDATE job
SET state = change.state, finished_at = CASE WHEN change.state >= 4 THEN @now END
FROM @change AS change
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = change.job;
INSERT INTO @moved (id, state, flags)
SELECT id, state, flags FROM {schema}.jobs WHERE id IN (SELECT job FROM @change);
UPDATE signal SET state = 2
FROM @moved AS moved
INNER LOOP JOIN {schema}.signals AS signal WITH (FORCESEEK, ROWLOCK) ON signal.job = moved.id
WHERE moved.flags & {waits} = {waits} AND moved.state >= 4 AND signal.state = 0;
DELETE held
FROM @moved AS moved
INNER LOOP JOIN {schema}.job_data AS data ON data.id = moved.id
INNER LOOP JOIN {schema}.unique_keys AS held WITH (FORCESEEK, ROWLOCK) ON held.[key] = data.unique_key
WHERE moved.flags & {unique_key} = {unique_key} AND moved.state >= 4 AND held.job = moved.id

-- name: request_cancel
-- Requests the cancellation of running jobs. [cancel.running] Primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET cancel_requested = 1
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 = 3

-- name: requeue_jobs
-- Moves dead letters to these waiting states, due now, with counters reset. Must run in a
-- transaction. [requeue.fresh] [lane.requeue] Primary keys.
DECLARE @now bigint = {now};
DECLARE @requeued TABLE (job binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL);
DECLARE @fresh TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @requeued (job, state)
SELECT CONVERT(binary(16), given.job, 2), given.state
FROM OPENJSON(@P1) WITH (job char(32), state smallint) AS given;
UPDATE {schema}.jobs
SET state = requeued.state, run_at = @now, attempts = 0, crash_count = 0, finished_at = NULL,
    flags = jobs.flags - (jobs.flags & {expires})
OUTPUT inserted.id INTO @fresh
FROM @requeued AS requeued{seek jobs}
WHERE jobs.id = requeued.job AND jobs.state + 0 = 5
OPTION (FORCE ORDER, LOOP JOIN);
UPDATE notes SET last_error = NULL
FROM @fresh AS fresh
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = fresh.id

-- name: reschedule_jobs
-- Makes waiting jobs due at the time @P2, or @P3 milliseconds from now if @P2 is NULL.
-- [reschedule.job] [lane.reschedule] Primary key of jobs.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET run_at = COALESCE(@P2, @now + @P3)
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 IN (0, 1, 2)

-- name: set_priority
-- Changes the priority of unfinished jobs. [priority.job] Primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET priority = @P2
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 < 4

-- name: release_jobs
-- Makes blocked jobs claimable that no longer wait for anything. [link.release] [signal.deliver]
-- Primary key of jobs.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET state = 0, run_at = CASE WHEN job.run_at > @now THEN job.run_at ELSE @now END
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 = 1

-- name: keep_errors
-- Stores the errors of locked jobs that failed without running. [signal.expire] Primary key of
-- job_notes.
DECLARE @failed TABLE (job binary(16) NOT NULL PRIMARY KEY, error nvarchar(max) NULL);
INSERT INTO @failed (job, error)
SELECT CONVERT(binary(16), given.job, 2), {text given.error}
FROM OPENJSON(@P1) WITH (job char(32), error {long}) AS given;
UPDATE notes SET last_error = failed.error
FROM @failed AS failed
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = failed.job;
INSERT INTO {schema}.job_notes (job, last_error)
SELECT failed.job, failed.error FROM @failed AS failed
WHERE NOT EXISTS (SELECT 1 FROM {schema}.job_notes AS notes WHERE notes.job = failed.job)

-- name: lock_free
-- Locks, until the transaction ends, those of these jobs that no other transaction has locked, and
-- returns them. Primary key of jobs. The rows are found by a range of their id, because the server
-- skips locked rows only in a range. Babelfish ignores hints: there, the statement returns all jobs
-- and locks none, and the caller then waits for locked jobs as usual.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job
    WITH (INDEX(jobs_pkey), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range job.id wanted.id}

-- name: lock_old
-- Locks the jobs of a state that finished longest ago until the transaction ends, beginning after
-- the finish time @P3 and the id @P4. Leaves out parents that unfinished children may read (flags:
-- 16 has children). The caller checks parents again for new children (awaited_parents). [purge.old]
-- [purge.awaited] [archive.old] [archive.awaited] [archive.race] [archive.poison] jobs_finished,
-- read in its order and without locks. The rows to lock are found by a range of their id, so that
-- locked ones are skipped, and their conditions are checked again. links_parent and primary keys.
-- The rows are written unchanged, which locks them on every server.
DECLARE @before bigint = {now} - @P2;
DECLARE @old TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @old (id)
SELECT TOP (@P5) job.id
FROM {schema}.jobs AS job WITH (INDEX(jobs_finished), FORCESEEK, ROWLOCK{passing})
INNER LOOP JOIN {schema}.jobs AS locked
    WITH (INDEX(jobs_pkey), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range locked.id job.id}
WHERE job.state = @P1 AND job.state >= 4 AND job.finished_at < @before
  AND (job.finished_at > @P3 OR (job.finished_at = @P3 AND job.id > CONVERT(binary(16), @P4)))
  AND locked.state + 0 = @P1 AND locked.finished_at = job.finished_at
  AND (locked.flags & {children} = 0 OR NOT EXISTS (
      SELECT 1 FROM {schema}.links AS link
      JOIN {schema}.jobs AS child ON child.id = link.child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4))
ORDER BY job.finished_at, job.id;
UPDATE job SET flags = job.flags
FROM @old AS old
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = old.id;
SELECT job.id, job.finished_at, job.flags
FROM @old AS old
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = old.id
WHERE job.state + 0 = @P1 AND job.finished_at < @before
ORDER BY job.finished_at, job.id

-- name: delete_jobs
-- Deletes finished jobs with all their data, except their idempotency keys. Must run in a
-- transaction. The caller sends few enough jobs that the server does not lock a whole table.
-- [delete.job] [purge.keys] [archive.move] [archive.keys] [link.kept] Primary keys;
-- job_tags_of_job.
DECLARE @gone TABLE (id binary(16) NOT NULL PRIMARY KEY, flags smallint NOT NULL);
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
INSERT INTO @gone (id, flags)
SELECT job.id, job.flags FROM {schema}.jobs AS job
WHERE job.id IN (SELECT id FROM @wanted) AND job.state + 0 >= 4;
DELETE job
FROM @gone AS gone
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = gone.id;
DELETE data
FROM @gone AS gone
INNER LOOP JOIN {schema}.job_data AS data WITH (FORCESEEK, ROWLOCK) ON data.id = gone.id;
DELETE notes
FROM @gone AS gone
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = gone.id;
DELETE tagged
FROM @gone AS gone
INNER LOOP JOIN {schema}.job_tags AS tagged WITH (FORCESEEK, ROWLOCK) ON tagged.job = gone.id
WHERE gone.flags & {tags} = {tags};
DELETE link
FROM @gone AS gone
INNER LOOP JOIN {schema}.links AS link WITH (FORCESEEK, ROWLOCK) ON link.child = gone.id
WHERE gone.flags & {waits} = {waits};
DELETE signal
FROM @gone AS gone
INNER LOOP JOIN {schema}.signals AS signal WITH (FORCESEEK, ROWLOCK) ON signal.job = gone.id
WHERE gone.flags & {waits} = {waits};
DELETE member
FROM @gone AS gone
INNER LOOP JOIN {schema}.batch_jobs AS member WITH (FORCESEEK, ROWLOCK) ON member.job = gone.id
WHERE gone.flags & {batch} = {batch};
DELETE attempt
FROM @gone AS gone
INNER LOOP JOIN {schema}.attempts AS attempt WITH (FORCESEEK, ROWLOCK) ON attempt.job = gone.id;
SELECT id FROM @gone

-- name: lock_holders
-- Returns those of these jobs that have their unique keys, with the time, and locks them until the
-- transaction ends. [keys.replace] [keys.debounce] [keys.follow] [keys.kind] [expiry.replace] Primary
-- keys. The rows are written unchanged, which locks them on every server.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET flags = job.flags
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id;
SELECT job.id, job.state, route.kind, job.run_at, job.created_at, @now, job.flags
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = wanted.id
LEFT JOIN {schema}.routes AS route ON route.id = job.route
WHERE job.flags & {unique_key} = {unique_key}
ORDER BY job.id

-- name: replace_payloads
-- Replaces the payloads and due times of waiting jobs, and deletes their checkpoints and their
-- progress. Must run in a transaction that has locked the jobs. [keys.replace] [keys.debounce]
-- [expiry.replace] Primary keys.
DECLARE @given TABLE (job binary(16) NOT NULL PRIMARY KEY, payload nvarchar(max) NOT NULL,
                      payload_version int NULL, run_at bigint NOT NULL, expires bit NOT NULL);
INSERT INTO @given (job, payload, payload_version, run_at, expires)
SELECT CONVERT(binary(16), given.job, 2), {text given.payload}, given.payload_version, given.run_at,
       given.expires
FROM OPENJSON(@P1) WITH (job char(32), payload {long}, payload_version int, run_at bigint,
                         expires bit) AS given;
UPDATE data SET payload = given.payload, payload_version = given.payload_version
FROM @given AS given
INNER LOOP JOIN {schema}.job_data AS data WITH (FORCESEEK, ROWLOCK) ON data.id = given.job;
UPDATE notes SET [percent] = NULL, message = NULL, [checkpoint] = NULL
FROM @given AS given
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = given.job;
UPDATE job
SET run_at = given.run_at, flags = job.flags - (job.flags & {expires})
        + CASE WHEN given.expires = 1 THEN {expires} ELSE 0 END
FROM @given AS given
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = given.job

-- name: release_keys
-- Deletes the unique keys of running jobs, so that new jobs can acquire them. Must run in a
-- transaction that has locked the jobs. [keys.follow] Primary keys.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DELETE held
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.job_data AS data ON data.id = wanted.id
INNER LOOP JOIN {schema}.unique_keys AS held WITH (FORCESEEK, ROWLOCK) ON held.[key] = data.unique_key
WHERE held.job = data.id;
UPDATE data SET unique_key = NULL
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.job_data AS data WITH (FORCESEEK, ROWLOCK) ON data.id = wanted.id;
UPDATE job SET flags = job.flags - (job.flags & {unique_key})
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id

-- name: drop_keys
-- Deletes those of these idempotency keys that are free again, so that new jobs can acquire them.
-- [keys.expire] Primary key.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @wanted (name) SELECT DISTINCT {name value} FROM OPENJSON(@P1);
DELETE used
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.idempotency_keys AS used WITH (FORCESEEK, ROWLOCK)
    ON used.[key] = wanted.name
WHERE used.expires_at <= @now

-- name: forget_keys
-- Deletes up to @P1 idempotency keys that are free again, except those that another transaction has
-- locked. idempotency_keys_expiry, read in its order, and the primary key.
DECLARE @now bigint = {now};
DECLARE @free TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @free (name)
SELECT TOP (@P1) [key] FROM {schema}.idempotency_keys WITH (ROWLOCK{passing})
WHERE expires_at <= @now
ORDER BY expires_at, [key];
DELETE used
FROM @free AS free
INNER LOOP JOIN {schema}.idempotency_keys AS used WITH (FORCESEEK, ROWLOCK)
    ON used.[key] = free.name
WHERE used.expires_at <= @now

-- name: add_expiries
-- Stores when jobs expire. A NULL time means the delay after the enqueue. Must run in the
-- transaction that has stored or locked the jobs. [expiry.enqueue] [expiry.replace] Primary key of
-- jobs.
DECLARE @given TABLE (job binary(16) NOT NULL PRIMARY KEY, expires_at bigint NULL,
                      delay bigint NOT NULL);
INSERT INTO @given (job, expires_at, delay)
SELECT CONVERT(binary(16), given.job, 2), given.expires_at, given.delay
FROM OPENJSON(@P1) WITH (job char(32), expires_at bigint, delay bigint) AS given;
INSERT INTO {schema}.expiries (job, expires_at)
SELECT given.job, COALESCE(given.expires_at, job.created_at + given.delay)
FROM @given AS given
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = given.job

-- name: expiries_of
-- Returns when jobs expire. [expiry.enqueue] [expiry.claim] [expiry.kept] Primary key.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, expires_at FROM {schema}.expiries WHERE job IN (SELECT id FROM @wanted)

-- name: drop_expiries
-- Deletes the expiries of jobs that were requeued, get another expiry or are deleted.
-- [expiry.requeue] [expiry.replace] [purge.whole] Primary key.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DELETE expiry
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.expiries AS expiry WITH (FORCESEEK, ROWLOCK) ON expiry.job = wanted.id

-- name: overdue_expiries
-- Returns up to @P1 jobs that have expired (ratchet_core::model::is_expired) and do not run, with
-- their expiries and flags, the longest overdue first, beginning after the expiry @P2 and the id
-- @P3. Also returns jobs that have ended in another way since the last pass. [expiry.pass]
-- [expiry.limit] expiries_open, read in its order, and the primary key of jobs.
DECLARE @now bigint = {now};
SELECT TOP (@P1) expiry.job, expiry.expires_at, job.flags
FROM {schema}.expiries AS expiry WITH (ROWLOCK{passing})
INNER LOOP JOIN {schema}.jobs AS job WITH (ROWLOCK{passing}) ON job.id = expiry.job
WHERE expiry.closed = 0 AND expiry.expires_at <= @now AND job.state + 0 <> 3
  AND (expiry.expires_at > @P2
       OR (expiry.expires_at = @P2 AND expiry.job > CONVERT(binary(16), @P3)))
ORDER BY expiry.expires_at, expiry.job

-- name: close_expiries
-- Marks those of these locked jobs that have expired as found by a pass, and returns them.
-- [expiry.pass] Primary key.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.expiries SET closed = 1
OUTPUT inserted.job
FROM @wanted AS wanted{seek expiries}
WHERE expiries.job = wanted.id
  AND expiries.closed = 0 AND expiries.expires_at <= @now
OPTION (FORCE ORDER, LOOP JOIN)
