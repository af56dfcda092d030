-- Stores, reads, changes and deletes jobs.

-- name: enqueue_job
-- Stores one new job without keys. Does what enqueue_jobs does for the most common batch. Stores
-- nothing if the route ($2) is missing or has another stamp than $14. A NULL time means now plus
-- the delay. [enqueue.created] [enqueue.due] [claim.version]
BEGIN;
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version)
SELECT $1, $7, $8, $9, $10, $11, $12, $13 FROM {schema}.routes WHERE id = $2 AND stamp = $14;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
SELECT $1, 0, $2, $3, $4, COALESCE($5, {now} + $6), {now}
FROM {schema}.routes WHERE id = $2 AND stamp = $14;
COMMIT

-- name: enqueue_jobs
-- Stores new jobs without keys. If one of them exists, fails with a duplicate key and stores none.
-- If $2, the largest of the jobs' routes, is missing or has another stamp than $3, the routes of
-- the jobs are NULL: the statement fails and stores nothing (error.rs). A NULL time means now plus
-- the delay. [enqueue.created] [enqueue.due] [claim.version]
SET @now = {now}, @zero = (SELECT 0 FROM {schema}.routes WHERE id = $2 AND stamp = $3);
BEGIN;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at)
VALUES {each $1 (<id>, 0, <route> + @zero, <priority>, <flags>, COALESCE(<run_at>, @now + <delay>), @now)};
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version)
VALUES {each $1 (<id>, <payload>, <retry>, <timeout>, <stall_timeout>, <traceparent>, <tracestate>, <payload_version>)};
COMMIT

-- name: enqueue_keyed
-- Stores jobs that may have keys, lanes, recurring definitions and tags, except jobs whose ids
-- exist, and acquires the keys. Returns how many it stored, and true. If a concurrent call acquired
-- a key or stored an id, the whole statement fails and stores nothing. If $3, the largest of the
-- jobs' routes, is missing or has another stamp than $4, stores nothing and returns 0 and false. A
-- NULL time means now plus the delay. [enqueue.created] [enqueue.repeat] [enqueue.due] [keys.race]
-- [enqueue.atomic] [lane.head] [recurring.origin] [tag.set] [claim.version] [fair.turn] Locks the
-- row of the route: the snapshot of a transaction of the application may be older than the route.
-- Keeps only the new jobs in a separate query, which locks nothing: an INSERT that reads jobs would
-- lock the gaps between them in a REPEATABLE READ transaction.
SET @now = {now}, @given = $1, @tagged = $2, @proven = FALSE;
BEGIN;
SELECT TRUE INTO @proven FROM {schema}.routes WHERE id = $3 AND stamp = $4 LOCK IN SHARE MODE;
INSERT INTO {schema}.idempotency_keys (`key`, job, reserved_at, expires_at)
SELECT given.idempotency_key, UNHEX(given.id), @now, @now + given.unique_for
FROM {rows @given (id id, idempotency_key name, unique_for bigint)} AS given
WHERE @proven AND given.idempotency_key IS NOT NULL ORDER BY given.idempotency_key;
INSERT INTO {schema}.unique_keys (`key`, job)
SELECT given.unique_key, UNHEX(given.id)
FROM {rows @given (id id, unique_key name)} AS given
WHERE @proven AND given.unique_key IS NOT NULL ORDER BY given.unique_key;
SELECT {json given.whole} INTO @given
FROM {rows @given (id id, whole whole)} AS given
LEFT JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.id)
WHERE @proven AND job.id IS NULL;
INSERT INTO {schema}.job_tags (job, tag)
SELECT UNHEX(tagged.job), tagged.tag
FROM {rows @given (id id)} AS given
STRAIGHT_JOIN {rows @tagged (job id, tag name)} AS tagged ON tagged.job = given.id;
INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                               payload_version, unique_key, idempotency_key, lane, recurring, slot)
SELECT UNHEX(given.id), given.payload, given.retry, given.timeout, given.stall_timeout,
       given.traceparent, given.tracestate, given.payload_version, given.unique_key,
       given.idempotency_key, given.lane, given.recurring, given.slot
FROM {rows @given (id id, payload text, retry text, timeout bigint, stall_timeout bigint,
                   traceparent text, tracestate text, payload_version int, unique_key name,
                   idempotency_key name, lane name, recurring name, slot bigint)} AS given;
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at, fair_key,
                           fair_cost, turn)
SELECT UNHEX(given.id), given.state, given.route, given.priority, given.flags,
       COALESCE(given.run_at, @now + given.delay), @now, given.fair_key, given.fair_cost, given.turn
FROM {rows @given (id id, route int, priority smallint, flags smallint, run_at bigint, delay bigint,
                   state smallint, fair_key name, fair_cost int, turn bigint)} AS given;
SET @stored = ROW_COUNT();
{some $1 turn}
INSERT INTO {schema}.turns (route, priority, fair_key, turn, job, fair_cost)
SELECT given.route, given.priority, given.fair_key, given.turn, UNHEX(given.id), given.fair_cost
FROM {rows @given (id id, route int, priority smallint, fair_key name, fair_cost int, turn bigint)}
     AS given
WHERE given.turn IS NOT NULL
ON DUPLICATE KEY UPDATE fair_cost = VALUES(fair_cost);
{end}
COMMIT;
SELECT @stored, @proven

-- name: find_keys
-- Returns which of these jobs are stored (0), and which jobs have these idempotency keys (1) and
-- unique keys (2). The idempotency keys that are free again have 3. [enqueue.repeat]
-- [keys.idempotency] [keys.expire] [keys.unique] Primary keys. In a transaction of the application
-- that keeps its snapshot, a job may have ended since then. So reads the unique keys that it finds
-- again, with locks. A lock on a missing key would keep other transactions from taking it.
SET @snapshot = {within} AND /*M!100600 @@SESSION.tx_isolation */
                             /*!80000 @@SESSION.transaction_isolation */ <> 'READ-COMMITTED';
SELECT {json JSON_QUOTE(`key`)} INTO @held
FROM {schema}.unique_keys FORCE INDEX (PRIMARY) WHERE @snapshot AND `key` IN ($3);
SELECT 2, held.`key`, held.job
FROM {names @held} AS found
STRAIGHT_JOIN {schema}.unique_keys AS held FORCE INDEX (PRIMARY) ON held.`key` = found.name
LOCK IN SHARE MODE;
SELECT 0 AS what, NULL AS `key`, id AS job FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE id IN ($1)
UNION ALL
SELECT CASE WHEN expires_at <= {now} THEN 3 ELSE 1 END, `key`, job
FROM {schema}.idempotency_keys FORCE INDEX (PRIMARY) WHERE `key` IN ($2)
UNION ALL
SELECT 2, `key`, job FROM {schema}.unique_keys FORCE INDEX (PRIMARY)
WHERE NOT @snapshot AND `key` IN ($3)

-- name: take_unique_keys
-- Acquires those of these unique keys that are free, in the order given.
-- [keys.unique] [keys.race] [requeue.key]
INSERT IGNORE INTO {schema}.unique_keys (`key`, job)
SELECT given.name, UNHEX(given.job)
FROM {rows $1 (name name, job id, place int)} AS given
ORDER BY given.place

-- name: find_unique_keys
-- Returns the unfinished jobs that have these unique keys. [requeue.key] Primary key of
-- unique_keys.
SELECT `key`, job FROM {schema}.unique_keys FORCE INDEX (PRIMARY) WHERE `key` IN ($1)

-- name: get_jobs
-- Returns jobs without their tags (tags_of), with the parts that may be large only if $2.
-- [get.whole] [get.outline] Primary keys.
SELECT job.id, job.state, job.route, job.priority, job.run_at, job.created_at, job.finished_at,
       job.attempts, job.crash_count, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
       data.id, CASE WHEN $2 THEN data.payload ELSE 'null' END, data.retry,
       data.timeout, data.stall_timeout, data.unique_key, data.idempotency_key,
       data.traceparent, data.tracestate,
       notes.percent, notes.message, CASE WHEN $2 THEN notes.checkpoint END,
       CASE WHEN $2 THEN notes.result END, notes.last_error,
       data.lane, data.recurring, data.slot, NULL, data.payload_version, job.flags,
       route.queue, route.kind, route.capability, route.permit, job.fair_key, job.fair_cost
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
LEFT JOIN {schema}.routes AS route FORCE INDEX (PRIMARY) ON route.id = job.route
LEFT JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes FORCE INDEX (PRIMARY) ON notes.job = job.id
WHERE job.id IN ($1)

-- name: tags_of
-- Returns the tags of jobs. [get.whole] [tag.set] job_tags_of_job.
SELECT job, tag FROM {schema}.job_tags FORCE INDEX (job_tags_of_job) WHERE job IN ($1)

-- name: history
-- Returns the ended claims of a job. [history.order] Primary keys. The claim that succeeded, the
-- last one, is in the row of the job.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM {schema}.attempts
WHERE job = $1
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us, 0, NULL
FROM {schema}.jobs
WHERE id = $1 AND state = 4
ORDER BY seq

-- name: histories
-- Returns the ended claims of jobs, as history does for one. [archive.move]
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error, job
FROM {schema}.attempts FORCE INDEX (PRIMARY)
WHERE job IN ($1)
UNION ALL
SELECT claim_seq, node, COALESCE(claimed_at, finished_at), finished_at, ran_for_us, 0, NULL, id
FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE id IN ($1) AND state = 4
ORDER BY job, seq

-- name: read_state
-- Returns the state, flags and unique keys of jobs, and locks the jobs until the transaction ends.
-- [act.respond] Primary keys; locked in order of id, as in every call.
SELECT job.id, job.state, job.flags,
       CASE WHEN job.flags & {unique_key} <> 0
            THEN (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = job.id) END
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
WHERE job.id IN ($1)
ORDER BY job.id
FOR UPDATE

-- name: change_state
-- Moves waiting jobs to other states, without a turn. Jobs that end release their unique keys and
-- no longer wait for signals (flags: 1 has a key, 8 waits for other jobs or for a signal). Must run
-- in a transaction that has locked the jobs. [act.respond] [cancel.waiting] [pause.job]
-- [signal.late] [fair.act] [fair.limit.wait] Notes the places of jobs that lose turns, if there are
-- limits; a transaction of the application may not see them. Primary keys.
SET @now = {now}, @given = $1;
SELECT {within} OR EXISTS (SELECT 1 FROM {schema}.fair_limits) INTO @limits;
BEGIN;
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT kept.route, kept.fair_key
FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
{turn job}
WHERE @limits AND kept.turn < {parked};
DELETE kept FROM {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
{turn job};
UPDATE {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.state = given.state, job.finished_at = CASE WHEN given.state >= 4 THEN @now END,
    job.turn = NULL;
UPDATE {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
STRAIGHT_JOIN {schema}.signals AS awaited FORCE INDEX (PRIMARY) ON awaited.job = job.id
SET awaited.state = 2
WHERE job.flags & {waits} <> 0 AND given.state >= 4 AND awaited.state = 0;
DELETE held
FROM {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
STRAIGHT_JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = job.id
STRAIGHT_JOIN {schema}.unique_keys AS held FORCE INDEX (PRIMARY) ON held.`key` = data.unique_key
WHERE job.flags & {unique_key} <> 0 AND given.state >= 4 AND held.job = job.id;
COMMIT

-- name: request_cancel
-- Requests the cancellation of running jobs. [cancel.running] Primary key of jobs.
UPDATE {schema}.jobs FORCE INDEX (PRIMARY) SET cancel_requested = TRUE
WHERE id IN ($1) AND state = 3

-- name: requeue_jobs
-- Moves dead letters to these waiting states, due now, with counters reset. Must run in a
-- transaction that has locked the jobs. [requeue.fresh] [lane.requeue] Primary keys.
SET @now = {now}, @given = $1;
BEGIN;
UPDATE {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
STRAIGHT_JOIN {schema}.job_notes AS notes FORCE INDEX (PRIMARY) ON notes.job = job.id
SET notes.last_error = NULL
WHERE job.state = 5;
UPDATE {rows @given (job id, state smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.state = given.state, job.run_at = @now, job.attempts = 0, job.crash_count = 0,
    job.finished_at = NULL, job.flags = job.flags - (job.flags & {expires})
WHERE job.state = 5;
COMMIT

-- name: reschedule_jobs
-- Makes waiting jobs due at the time $2, or $3 milliseconds from now if $2 is NULL. Jobs that were
-- due at another time lose their turns; the assignments of an UPDATE see those before them. Must
-- run in a transaction that has locked the jobs. [reschedule.job] [lane.reschedule] [fair.act]
-- [fair.limit.wait] Primary keys.
SET @due = COALESCE($2, {now} + $3);
SELECT {within} OR EXISTS (SELECT 1 FROM {schema}.fair_limits) INTO @limits;
BEGIN;
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT kept.route, kept.fair_key
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
{turn job}
WHERE job.id IN ($1) AND job.run_at <> @due AND @limits AND kept.turn < {parked};
DELETE kept FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
{turn job}
WHERE job.id IN ($1) AND job.run_at <> @due;
UPDATE {schema}.jobs FORCE INDEX (PRIMARY)
SET turn = CASE WHEN run_at = @due THEN turn END, run_at = @due
WHERE id IN ($1) AND state IN (0, 1, 2);
COMMIT

-- name: set_priority
-- Sets the priority of unfinished jobs. Jobs that had another priority lose their turns; the
-- assignments of an UPDATE see those before them. Must run in a transaction that has locked the
-- jobs. [priority.job] [fair.act] [fair.limit.wait] Primary keys.
SELECT {within} OR EXISTS (SELECT 1 FROM {schema}.fair_limits) INTO @limits;
BEGIN;
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT kept.route, kept.fair_key
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
{turn job}
WHERE job.id IN ($1) AND job.priority <> $2 AND @limits AND kept.turn < {parked};
DELETE kept FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
{turn job}
WHERE job.id IN ($1) AND job.priority <> $2;
UPDATE {schema}.jobs FORCE INDEX (PRIMARY)
SET turn = CASE WHEN priority = $2 THEN turn END, priority = $2
WHERE id IN ($1) AND state < 4;
COMMIT

-- name: release_jobs
-- Makes blocked jobs claimable that no longer wait for anything. [link.release] [signal.deliver]
-- Primary key of jobs.
UPDATE {schema}.jobs FORCE INDEX (PRIMARY) SET state = 0, run_at = GREATEST(run_at, {now})
WHERE id IN ($1) AND state = 1

-- name: keep_errors
-- Stores the errors of jobs that failed without running. [signal.expire] Primary key of job_notes.
INSERT INTO {schema}.job_notes (job, last_error)
SELECT UNHEX(given.job), given.error FROM {rows $1 (job id, error text)} AS given
ON DUPLICATE KEY UPDATE last_error = VALUES(last_error)

-- name: lock_free
-- Locks, until the transaction ends, those of these jobs that no other transaction has locked, and
-- returns them. Primary key of jobs.
SELECT id FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE id IN ($1)
ORDER BY id
FOR UPDATE SKIP LOCKED

-- name: lock_old
-- Locks the jobs of a state that finished longest ago until the transaction ends, beginning after
-- the finish time $3 and the id $4. Leaves out parents that unfinished children may read (flags: 16
-- has children). The caller checks parents again for new children (awaited_parents). [purge.old]
-- [purge.awaited] [archive.old] [archive.awaited] [archive.race] [archive.poison] jobs_state,
-- read in its order, links_parent and primary keys.
SELECT job.id, job.finished_at, job.flags
FROM {schema}.jobs AS job FORCE INDEX (jobs_state)
WHERE job.state = $1 AND job.state >= 4
  AND job.finished_at < {now} - $2
  AND job.finished_at >= $3 AND (job.finished_at > $3 OR job.id > $4)
  AND (job.flags & {children} = 0 OR NOT EXISTS (
      SELECT 1 FROM {schema}.links AS link
      STRAIGHT_JOIN {schema}.jobs AS child FORCE INDEX (PRIMARY) ON child.id = link.child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4))
ORDER BY job.finished_at, job.holder, job.turn_level, job.turn_place, job.turn_key, job.id
LIMIT $5
FOR UPDATE SKIP LOCKED

-- name: delete_jobs
-- Deletes finished jobs with all their data, except their idempotency keys. Returns the deleted
-- jobs. [delete.job] [purge.keys] [archive.move] [archive.keys] [link.kept] Primary keys;
-- job_tags_of_job.
BEGIN;
SELECT {hex gone.id} INTO @gone
FROM (SELECT id FROM {schema}.jobs FORCE INDEX (PRIMARY) WHERE id IN ($1) AND state >= 4
      ORDER BY id FOR UPDATE) AS gone;
DELETE data FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = UNHEX(gone.id);
DELETE notes FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.job_notes AS notes FORCE INDEX (PRIMARY) ON notes.job = UNHEX(gone.id);
DELETE tagged FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.job_tags AS tagged FORCE INDEX (job_tags_of_job)
  ON tagged.job = UNHEX(gone.id);
DELETE link FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.links AS link FORCE INDEX (PRIMARY) ON link.child = UNHEX(gone.id);
DELETE awaited FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.signals AS awaited FORCE INDEX (PRIMARY) ON awaited.job = UNHEX(gone.id);
DELETE child FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.batch_jobs AS child FORCE INDEX (PRIMARY) ON child.job = UNHEX(gone.id);
DELETE attempt FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.attempts AS attempt FORCE INDEX (PRIMARY) ON attempt.job = UNHEX(gone.id);
DELETE job FROM {list @gone} AS gone
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(gone.id);
SELECT UNHEX(gone.id) FROM {list @gone} AS gone;
COMMIT

-- name: lock_holders
-- Returns those of these jobs that have their unique keys, with the time, and locks them until the
-- transaction ends. The snapshot of a transaction of the application may be older than a route, so
-- reads the routes with locks. [keys.replace] [keys.debounce] [keys.follow] [keys.kind]
-- [expiry.replace] Primary keys; locked in order of id, as in every call.
SELECT job.id, job.state,
       (SELECT kind FROM {schema}.routes AS route FORCE INDEX (PRIMARY)
        WHERE route.id = job.route LOCK IN SHARE MODE),
       job.run_at, job.created_at, {now}, job.flags
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
WHERE job.id IN ($1) AND job.flags & {unique_key} <> 0
ORDER BY job.id
FOR UPDATE

-- name: replace_payloads
-- Replaces the payloads and due times of waiting jobs, and deletes their checkpoints and their
-- progress. Jobs that were due at another time lose their turns; the assignments of an UPDATE see
-- those before them. Must run in a transaction that has locked the jobs. [keys.replace]
-- [keys.debounce] [expiry.replace] [fair.act] [fair.limit.wait] Primary keys.
SET @given = $1;
SELECT {within} OR EXISTS (SELECT 1 FROM {schema}.fair_limits) INTO @limits;
BEGIN;
INSERT INTO {schema}.freed (route, fair_key)
SELECT DISTINCT kept.route, kept.fair_key
FROM {rows @given (job id, run_at bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
{turn job}
WHERE @limits AND job.run_at <> given.run_at AND kept.turn < {parked};
UPDATE {rows @given (job id, payload text, payload_version int)} AS given
STRAIGHT_JOIN {schema}.job_data AS data FORCE INDEX (PRIMARY) ON data.id = UNHEX(given.job)
SET data.payload = given.payload, data.payload_version = given.payload_version;
UPDATE {rows @given (job id)} AS given
STRAIGHT_JOIN {schema}.job_notes AS notes FORCE INDEX (PRIMARY) ON notes.job = UNHEX(given.job)
SET notes.percent = NULL, notes.message = NULL, notes.checkpoint = NULL;
DELETE kept FROM {rows @given (job id, run_at bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
{turn job}
WHERE job.run_at <> given.run_at;
UPDATE {rows @given (job id, run_at bigint, expires smallint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)
SET job.turn = CASE WHEN job.run_at = given.run_at THEN job.turn END, job.run_at = given.run_at,
    job.flags = job.flags - (job.flags & {expires}) + CASE WHEN given.expires THEN {expires} ELSE 0 END;
COMMIT

-- name: release_keys
-- Deletes the unique keys of running jobs, so that new jobs can acquire them. Must run in a
-- transaction that has locked the jobs. [keys.follow] Primary keys.
BEGIN;
DELETE held
FROM {schema}.job_data AS data FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {schema}.unique_keys AS held FORCE INDEX (PRIMARY) ON held.`key` = data.unique_key
WHERE data.id IN ($1) AND held.job = data.id;
UPDATE {schema}.job_data FORCE INDEX (PRIMARY) SET unique_key = NULL WHERE id IN ($1);
UPDATE {schema}.jobs FORCE INDEX (PRIMARY) SET flags = flags - (flags & {unique_key})
WHERE id IN ($1);
COMMIT

-- name: drop_keys
-- Deletes those of these idempotency keys that are free again, so that new jobs can acquire them.
-- [keys.expire] Primary key.
DELETE used FROM {schema}.idempotency_keys AS used FORCE INDEX (PRIMARY)
WHERE used.`key` IN ($1) AND used.expires_at <= {now}

-- name: forget_keys
-- Deletes up to $1 idempotency keys that are free again, except those that another transaction has
-- locked. idempotency_keys_expiry, read in its order, and the primary key.
BEGIN;
SELECT {json JSON_QUOTE(free.`key`)} INTO @free
FROM (SELECT `key` FROM {schema}.idempotency_keys FORCE INDEX (idempotency_keys_expiry)
      WHERE expires_at <= {now}
      ORDER BY expires_at, `key`
      LIMIT $1
      FOR UPDATE SKIP LOCKED) AS free;
DELETE used FROM {names @free} AS free
STRAIGHT_JOIN {schema}.idempotency_keys AS used FORCE INDEX (PRIMARY) ON used.`key` = free.name;
COMMIT

-- name: add_expiries
-- Stores when jobs expire. A NULL time means the delay after the enqueue. Must run in the
-- transaction that has stored or locked the jobs. [expiry.enqueue] [expiry.replace] Primary key of
-- jobs.
INSERT INTO {schema}.expiries (job, expires_at)
SELECT job.id, COALESCE(given.expires_at, job.created_at + given.delay)
FROM {rows $1 (job id, expires_at bigint, delay bigint)} AS given
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(given.job)

-- name: expiries_of
-- Returns when jobs expire. [expiry.enqueue] [expiry.claim] [expiry.kept] Primary key.
SELECT job, expires_at FROM {schema}.expiries FORCE INDEX (PRIMARY) WHERE job IN ($1)

-- name: drop_expiries
-- Deletes the expiries of jobs that were requeued, get another expiry or are deleted.
-- [expiry.requeue] [expiry.replace] [purge.whole] Primary key.
DELETE expiry FROM {schema}.expiries AS expiry FORCE INDEX (PRIMARY) WHERE expiry.job IN ($1)

-- name: overdue_expiries
-- Returns up to $1 jobs that have expired (ratchet_core::model::is_expired) and do not run, with
-- their expiries and flags, the longest overdue first, beginning after the expiry $2 and the id
-- $3. Also returns jobs that have ended in another way since the last pass. [expiry.pass]
-- [expiry.limit] expiries_open, read in its order, and the primary key of jobs.
SELECT expiry.job, expiry.expires_at, job.flags
FROM {schema}.expiries AS expiry FORCE INDEX (expiries_open)
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = expiry.job
WHERE expiry.closed = FALSE AND expiry.expires_at <= {now} AND job.state <> 3
  AND expiry.expires_at >= $2 AND (expiry.expires_at > $2 OR expiry.job > $3)
ORDER BY expiry.expires_at, expiry.job
LIMIT $1

-- name: close_expiries
-- Marks those of these locked jobs that have expired as found by a pass, and returns them.
-- [expiry.pass] Primary key.
SET @now = {now};
BEGIN;
SELECT job FROM {schema}.expiries FORCE INDEX (PRIMARY)
WHERE job IN ($1) AND closed = FALSE AND expires_at <= @now
FOR UPDATE;
UPDATE {schema}.expiries FORCE INDEX (PRIMARY) SET closed = TRUE
WHERE job IN ($1) AND closed = FALSE AND expires_at <= @now;
COMMIT
