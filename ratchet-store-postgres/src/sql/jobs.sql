-- Stores, reads, changes and deletes jobs.

-- name: enqueue_job
-- Stores one new job without keys. Does what enqueue_jobs does for the most common batch, at two
-- thirds of the cost. Stores nothing if the route ($2) is missing or has another stamp than $15. A
-- NULL time means now plus the delay. [enqueue.created] [enqueue.due] [claim.version]
WITH clock AS MATERIALIZED (
    SELECT {now} AS now FROM {schema}.routes WHERE id = $2 AND stamp = $15
),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent, tracestate,
                                   payload_version)
    SELECT $1, $7, $8, $9, $10, $11, $12, $13 FROM clock
)
INSERT INTO {schema}.jobs (id, state, route, priority, flags, queue, run_at, created_at)
SELECT $1, 0, $2, $3, $4, $14, coalesce($5, clock.now + $6), clock.now FROM clock

-- name: enqueue_jobs
-- Stores new jobs without keys. If one of them exists, fails with a duplicate key and stores none.
-- A check per row (ON CONFLICT) would take a third more time, and write one WAL record per row.
-- Stores nothing if $15, the largest of the jobs' routes, is missing or has another stamp than $16.
-- A NULL time means now plus the delay. [enqueue.created] [enqueue.due] [claim.version]
WITH clock AS MATERIALIZED (
    SELECT {now} AS now FROM {schema}.routes WHERE id = $15 AND stamp = $16
),
new AS (
    SELECT new.*, clock.now
    FROM clock CROSS JOIN
         unnest($1::uuid[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[],
                $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::bigint[],
                $11::text[], $12::text[], $13::integer[], $14::text[])
    AS new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
            traceparent, tracestate, payload_version, queue)
),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent,
                                   tracestate, payload_version)
    SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version
    FROM new
)
INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at, queue)
SELECT new.id, 0, new.route, new.priority, new.flags,
       coalesce(new.run_at, new.now + new.delay), new.now, new.queue
FROM new

-- name: enqueue_keyed
-- Stores jobs that may have keys, lanes, recurring definitions and tags, except jobs whose ids
-- exist, and acquires the keys. Returns how many it stored, and true. If a concurrent call acquired
-- a key, the whole statement fails and stores nothing. If $27, the largest of the jobs' routes, is
-- missing or has another stamp than $28, stores nothing and returns 0 and false. A NULL time means
-- now plus the delay. [enqueue.created] [enqueue.repeat] [enqueue.due] [keys.race] [enqueue.atomic]
-- [lane.head] [recurring.origin] [tag.set] [claim.version] [fair.turn]
WITH clock AS MATERIALIZED (
    SELECT {now} AS now FROM {schema}.routes WHERE id = $27 AND stamp = $28
),
new AS (
    SELECT new.*, clock.now
    FROM clock CROSS JOIN
         unnest($1::uuid[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[],
                $6::bigint[], $7::text[], $8::text[], $9::bigint[], $10::bigint[],
                $11::text[], $12::text[], $13::integer[], $14::text[], $15::text[],
                $16::text[], $17::smallint[], $18::text[], $19::bigint[], $20::bigint[],
                $21::text[], $22::integer[], $23::bigint[], $24::text[])
    AS new (id, route, priority, flags, run_at, delay, payload, retry, timeout, stall_timeout,
            traceparent, tracestate, payload_version, unique_key, idempotency_key, lane, state,
            recurring, slot, unique_for, fair_key, fair_cost, turn, queue)
),
idempotency AS (
    INSERT INTO {schema}.idempotency_keys (key, job, reserved_at, expires_at)
    SELECT idempotency_key, id, now, now + unique_for FROM new
    WHERE idempotency_key IS NOT NULL ORDER BY idempotency_key
),
uniqueness AS (
    INSERT INTO {schema}.unique_keys (key, job)
    SELECT unique_key, id FROM new WHERE unique_key IS NOT NULL ORDER BY unique_key
),
cold AS (
    INSERT INTO {schema}.job_data (id, payload, retry, timeout, stall_timeout, traceparent,
                                   tracestate, payload_version, unique_key, idempotency_key,
                                   lane, recurring, slot)
    SELECT id, payload, retry, timeout, stall_timeout, traceparent, tracestate, payload_version,
           unique_key, idempotency_key, lane, recurring, slot
    FROM new
    ON CONFLICT (id) DO NOTHING
),
stored AS (
    INSERT INTO {schema}.jobs (id, state, route, priority, flags, run_at, created_at, fair_key,
                               fair_cost, turn, queue)
    SELECT new.id, new.state, new.route, new.priority, new.flags,
           coalesce(new.run_at, new.now + new.delay), new.now, new.fair_key, new.fair_cost, new.turn,
           new.queue
    FROM new
    ON CONFLICT (id) DO NOTHING
    RETURNING id
),
tagged AS (
    INSERT INTO {schema}.job_tags (job, tag)
    SELECT given.job, given.tag
    FROM unnest($25::uuid[], $26::text[]) AS given (job, tag)
    JOIN stored ON stored.id = given.job
)
SELECT (SELECT count(*) FROM stored), EXISTS (SELECT FROM clock)

-- name: find_keys
-- Returns which of these jobs are stored (0), and which jobs have these idempotency keys (1) and
-- unique keys (2). The idempotency keys that are free again have 3. [enqueue.repeat]
-- [keys.idempotency] [keys.expire] [keys.unique] Primary keys.
SELECT 0 AS what, NULL AS key, id AS job FROM {schema}.jobs WHERE id = ANY($1::uuid[])
UNION ALL
SELECT CASE WHEN expires_at <= {now} THEN 3 ELSE 1 END, key, job
FROM {schema}.idempotency_keys WHERE key = ANY($2::text[])
UNION ALL
SELECT 2, key, job FROM {schema}.unique_keys WHERE key = ANY($3::text[])

-- name: take_unique_keys
-- Acquires those of these unique keys that are free, in the order given. Returns one row for each.
-- [keys.unique] [keys.race] [requeue.key]
INSERT INTO {schema}.unique_keys (key, job)
SELECT wanted.name, wanted.job
FROM unnest($1::text[], $2::uuid[], $3::integer[]) AS wanted (name, job, place)
ORDER BY wanted.place
ON CONFLICT (key) DO NOTHING
RETURNING job

-- name: find_unique_keys
-- Returns the unfinished jobs that have these unique keys. [requeue.key] Primary key of
-- unique_keys.
SELECT key, job FROM {schema}.unique_keys WHERE key = ANY($1::text[])

-- name: get_jobs
-- Returns jobs, with the parts that may be large only if $2. [get.whole] [get.outline] Primary
-- keys.
SELECT job.id, job.state, job.route, job.priority, job.run_at, job.created_at, job.finished_at,
       job.attempts, job.crash_count, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
       data.id, CASE WHEN $2 THEN data.payload ELSE 'null' END, data.retry,
       data.timeout, data.stall_timeout, data.unique_key, data.idempotency_key,
       data.traceparent, data.tracestate,
       notes.percent, notes.message, CASE WHEN $2 THEN notes.checkpoint END,
       CASE WHEN $2 THEN notes.result END, notes.last_error,
       data.lane, data.recurring, data.slot,
       CASE WHEN job.flags & {tags} = {tags}
            THEN (SELECT string_agg(tagged.tag, E'\n') FROM {schema}.job_tags AS tagged
                  WHERE tagged.job = job.id) END,
       data.payload_version, job.flags,
       coalesce(job.queue, route.queue), route.kind, route.capability, route.permit, job.fair_key,
       job.fair_cost
FROM {schema}.jobs AS job
LEFT JOIN {schema}.routes AS route ON route.id = job.route
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
WHERE job.id = ANY($1::uuid[])

-- name: history
-- Returns the ended claims of a job. [history.order] Primary keys. The claim that succeeded, the
-- last one, is in the row of the job.
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error
FROM {schema}.attempts
WHERE job = $1
UNION ALL
SELECT claim_seq, node, coalesce(claimed_at, finished_at), finished_at, ran_for_us, 0::smallint, NULL
FROM {schema}.jobs
WHERE id = $1 AND state + 0 = 4
ORDER BY seq

-- name: histories
-- Returns the ended claims of jobs, as history does for one. [archive.move]
SELECT seq, node, claimed_at, ended_at, ran_for_us, outcome, error, job
FROM {schema}.attempts
WHERE job = ANY($1::uuid[])
UNION ALL
SELECT claim_seq, node, coalesce(claimed_at, finished_at), finished_at, ran_for_us, 0::smallint, NULL,
       id
FROM {schema}.jobs
WHERE id = ANY($1::uuid[]) AND state + 0 = 4
ORDER BY job, seq

-- name: read_state
-- Returns the state, flags and unique keys of jobs, and locks the jobs until the transaction ends.
-- [act.respond] Primary keys; locked in order of id, as in every call.
SELECT job.id, job.state, job.flags,
       CASE WHEN job.flags & {unique_key} = {unique_key}
            THEN (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = job.id) END
FROM {schema}.jobs AS job
WHERE job.id = ANY($1::uuid[])
ORDER BY job.id
FOR NO KEY UPDATE OF job

-- name: change_state
-- Moves waiting jobs to other states, without a turn. Jobs that end release their unique keys and no
-- longer wait for signals (flags: 1 has a key, 8 waits for other jobs or for a signal). [act.respond]
-- [cancel.waiting] [pause.job] [signal.late] [fair.act] [fair.limit.wait] Notes the places of jobs
-- that lose turns, if there are limits. Primary keys.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
freed AS (
    INSERT INTO {schema}.freed (route, fair_key)
    SELECT DISTINCT job.route, job.fair_key
    FROM unnest($1::uuid[], $2::smallint[]) AS change (job, state)
    JOIN {schema}.jobs AS job ON job.id = change.job
    WHERE job.state + 0 = 0 AND job.turn < {parked} AND job.fair_key IS NOT NULL
      AND EXISTS (SELECT FROM {schema}.fair_limits)
),
moved AS (
    UPDATE {schema}.jobs AS job
    SET state = change.state, finished_at = CASE WHEN change.state >= 4 THEN clock.now END,
        turn = NULL
    FROM unnest($1::uuid[], $2::smallint[]) AS change (job, state)
    CROSS JOIN clock
    WHERE job.id = change.job
    RETURNING job.id, job.state, job.flags
),
missed AS (
    UPDATE {schema}.signals AS signal SET state = 2
    FROM moved
    WHERE moved.flags & {waits} = {waits} AND moved.state >= 4 AND signal.job = moved.id AND signal.state = 0
)
DELETE FROM {schema}.unique_keys AS held
USING moved
WHERE moved.flags & {unique_key} = {unique_key} AND moved.state >= 4
  AND held.key = (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = moved.id)
  AND held.job = moved.id

-- name: request_cancel
-- Requests the cancellation of running jobs. [cancel.running] Primary key of jobs.
UPDATE {schema}.jobs SET cancel_requested = true WHERE id = ANY($1::uuid[]) AND state + 0 = 3

-- name: requeue_jobs
-- Moves dead letters to these waiting states, due now, with counters reset.
-- [requeue.fresh] [lane.requeue] Primary keys.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
fresh AS (
    UPDATE {schema}.jobs AS job
    SET state = requeued.state, run_at = clock.now, attempts = 0, crash_count = 0, finished_at = NULL,
        flags = job.flags - (job.flags & {expires})
    FROM unnest($1::uuid[], $2::smallint[]) AS requeued (job, state)
    CROSS JOIN clock
    WHERE job.id = requeued.job AND job.state + 0 = 5
    RETURNING job.id
)
UPDATE {schema}.job_notes AS notes SET last_error = NULL FROM fresh WHERE notes.job = fresh.id

-- name: reschedule_jobs
-- Makes waiting jobs due at the time $2, or $3 milliseconds from now if $2 is NULL. Jobs that were
-- due at another time lose their turns. [reschedule.job] [lane.reschedule] [fair.act]
-- [fair.limit.wait] Primary key of jobs.
WITH due AS MATERIALIZED (SELECT coalesce($2::bigint, {now} + $3::bigint) AS run_at),
freed AS (
    INSERT INTO {schema}.freed (route, fair_key)
    SELECT DISTINCT job.route, job.fair_key
    FROM due CROSS JOIN unnest($1::uuid[]) AS change (job)
    JOIN {schema}.jobs AS job ON job.id = change.job
    WHERE job.state + 0 = 0 AND job.turn < {parked} AND job.fair_key IS NOT NULL AND job.run_at <> due.run_at
      AND EXISTS (SELECT FROM {schema}.fair_limits)
)
UPDATE {schema}.jobs AS job
SET run_at = due.run_at, turn = CASE WHEN job.run_at = due.run_at THEN job.turn END
FROM due
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 IN (0, 1, 2)

-- name: set_priority
-- Sets the priority of unfinished jobs. Jobs that had another priority lose their turns.
-- [priority.job] [fair.act] [fair.limit.wait] Primary key of jobs.
WITH freed AS (
    INSERT INTO {schema}.freed (route, fair_key)
    SELECT DISTINCT job.route, job.fair_key
    FROM unnest($1::uuid[]) AS change (job)
    JOIN {schema}.jobs AS job ON job.id = change.job
    WHERE job.state + 0 = 0 AND job.turn < {parked} AND job.fair_key IS NOT NULL AND job.priority <> $2
      AND EXISTS (SELECT FROM {schema}.fair_limits)
)
UPDATE {schema}.jobs SET priority = $2, turn = CASE WHEN priority = $2 THEN turn END
WHERE id = ANY($1::uuid[]) AND state + 0 < 4

-- name: release_jobs
-- Makes blocked jobs claimable that no longer wait for anything. [link.release] [signal.deliver]
-- Primary key of jobs.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.jobs AS job SET state = 0, run_at = greatest(job.run_at, clock.now)
FROM clock
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 = 1

-- name: keep_errors
-- Stores the errors of jobs that failed without running. [signal.expire] Primary key of job_notes.
INSERT INTO {schema}.job_notes AS notes (job, last_error)
SELECT job, error FROM unnest($1::uuid[], $2::text[]) AS failed (job, error)
ON CONFLICT (job) DO UPDATE SET last_error = excluded.last_error

-- name: lock_free
-- Locks, until the transaction ends, those of these jobs that no other transaction has locked, and
-- returns them. Primary key of jobs.
SELECT job.id
FROM unnest($1::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT id FROM {schema}.jobs WHERE id = wanted.id FOR NO KEY UPDATE SKIP LOCKED
) AS job

-- name: lock_old
-- Locks the jobs of a state that finished longest ago until the transaction ends, beginning after
-- the finish time $3 and the id $4. Leaves out parents that unfinished children may read (flags: 16
-- has children). The caller checks parents again for new children (awaited_parents). [purge.old]
-- [purge.awaited] [archive.old] [archive.awaited] [archive.race] [archive.poison] jobs_finished,
-- read in its order, links_parent and primary keys: OFFSET 0 keeps the planner from hashing a whole
-- table.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT job.id, job.finished_at, job.flags
FROM {schema}.jobs AS job
WHERE job.state = $1 AND job.state >= 4
  AND job.finished_at < (SELECT now FROM clock) - $2::bigint
  AND (job.finished_at, job.id) > ($3::bigint, $4::uuid)
  AND (job.flags & {children} = 0 OR NOT EXISTS (
      SELECT FROM {schema}.links AS link
      CROSS JOIN LATERAL (
          SELECT state FROM {schema}.jobs AS child WHERE child.id = link.child OFFSET 0
      ) AS child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4
      OFFSET 0))
ORDER BY job.finished_at, job.id
LIMIT $5
FOR UPDATE OF job SKIP LOCKED

-- name: delete_jobs
-- Deletes finished jobs with all their data, except their idempotency keys.
-- [delete.job] [purge.keys] [archive.move] [archive.keys] [link.kept] Primary keys;
-- job_tags_of_job.
WITH gone AS (
    DELETE FROM {schema}.jobs WHERE id = ANY($1::uuid[]) AND state + 0 >= 4 RETURNING id, flags
),
data AS (
    DELETE FROM {schema}.job_data WHERE id = ANY(ARRAY(SELECT id FROM gone))
),
notes AS (
    DELETE FROM {schema}.job_notes WHERE job = ANY(ARRAY(SELECT id FROM gone))
),
tags AS (
    DELETE FROM {schema}.job_tags WHERE job = ANY(ARRAY(SELECT id FROM gone))
),
links AS (
    DELETE FROM {schema}.links WHERE child = ANY(ARRAY(SELECT id FROM gone WHERE flags & {waits} = {waits}))
),
signals AS (
    DELETE FROM {schema}.signals WHERE job = ANY(ARRAY(SELECT id FROM gone WHERE flags & {waits} = {waits}))
),
memberships AS (
    DELETE FROM {schema}.batch_jobs
    WHERE job = ANY(ARRAY(SELECT id FROM gone WHERE flags & {batch} = {batch}))
),
history AS (
    DELETE FROM {schema}.attempts WHERE job = ANY(ARRAY(SELECT id FROM gone))
)
SELECT id FROM gone

-- name: lock_holders
-- Returns those of these jobs that have their unique keys, with the time, and locks them until the
-- transaction ends. [keys.replace] [keys.debounce] [keys.follow] [keys.kind] [expiry.replace] Primary
-- keys; locked in order of id, as in every call.
SELECT job.id, job.state, route.kind, job.run_at, job.created_at, {now}, job.flags
FROM {schema}.jobs AS job
LEFT JOIN {schema}.routes AS route ON route.id = job.route
WHERE job.id = ANY($1::uuid[]) AND job.flags & {unique_key} = {unique_key}
ORDER BY job.id
FOR NO KEY UPDATE OF job

-- name: replace_payloads
-- Replaces the payloads and due times of waiting jobs, and deletes their checkpoints and their
-- progress. Jobs that were due at another time lose their turns. Must run in a transaction that has
-- locked the jobs. Writes the rows of jobs even if nothing in them changes, because that moves them
-- to another place (ctid): a claim that has read the old place then skips them, so that it does not
-- return an old payload. [keys.replace] [keys.debounce] [expiry.replace] [fair.act]
-- [fair.limit.wait] A transaction of the application may have begun before the first limit. Primary
-- keys.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::bigint[], $5::boolean[])
    AS given (job, payload, payload_version, run_at, expires)
),
freed AS (
    INSERT INTO {schema}.freed (route, fair_key)
    SELECT DISTINCT job.route, job.fair_key
    FROM given
    JOIN {schema}.jobs AS job ON job.id = given.job
    WHERE job.state + 0 = 0 AND job.turn < {parked} AND job.fair_key IS NOT NULL
      AND job.run_at <> given.run_at
      AND (EXISTS (SELECT FROM {schema}.fair_limits)
           OR current_setting('transaction_isolation') <> 'read committed')
),
replaced AS (
    UPDATE {schema}.job_data AS data
    SET payload = given.payload, payload_version = given.payload_version
    FROM given WHERE data.id = given.job
),
cleared AS (
    UPDATE {schema}.job_notes AS notes SET percent = NULL, message = NULL, checkpoint = NULL
    FROM given WHERE notes.job = given.job
)
UPDATE {schema}.jobs AS job
SET run_at = given.run_at, turn = CASE WHEN job.run_at = given.run_at THEN job.turn END,
    flags = job.flags - (job.flags & {expires}) + CASE WHEN given.expires THEN {expires} ELSE 0 END
FROM given
WHERE job.id = given.job

-- name: release_keys
-- Deletes the unique keys of running jobs, so that new jobs can acquire them. Must run in a
-- transaction that has locked the jobs. [keys.follow] Primary keys.
WITH released AS (
    DELETE FROM {schema}.unique_keys AS held
    USING {schema}.job_data AS data
    WHERE data.id = ANY($1::uuid[]) AND held.key = data.unique_key AND held.job = data.id
),
dropped AS (
    UPDATE {schema}.job_data SET unique_key = NULL WHERE id = ANY($1::uuid[])
)
UPDATE {schema}.jobs SET flags = flags - (flags & {unique_key}) WHERE id = ANY($1::uuid[])

-- name: drop_keys
-- Deletes those of these idempotency keys that are free again, so that new jobs can acquire them.
-- [keys.expire] Primary key.
DELETE FROM {schema}.idempotency_keys WHERE key = ANY($1::text[]) AND expires_at <= {now}

-- name: forget_keys
-- Deletes up to $1 idempotency keys that are free again, except those that another transaction has
-- locked. idempotency_keys_expiry, read in its order, and the primary key.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
free AS MATERIALIZED (
    SELECT key FROM {schema}.idempotency_keys
    WHERE expires_at <= (SELECT now FROM clock)
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.idempotency_keys WHERE key = ANY(ARRAY(SELECT key FROM free))

-- name: add_expiries
-- Stores when jobs expire. A NULL time means the delay after the enqueue. Must run in the
-- transaction that has stored or locked the jobs. [expiry.enqueue] [expiry.replace] Primary key of
-- jobs.
INSERT INTO {schema}.expiries (job, expires_at)
SELECT given.job, coalesce(given.expires_at, given.delay + (
    SELECT created_at FROM {schema}.jobs AS job WHERE job.id = given.job))
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS given (job, expires_at, delay)

-- name: expiries_of
-- Returns when jobs expire. [expiry.enqueue] [expiry.claim] [expiry.kept] Primary key.
SELECT job, expires_at FROM {schema}.expiries WHERE job = ANY($1::uuid[])

-- name: drop_expiries
-- Deletes the expiries of jobs that were requeued, get another expiry or are deleted.
-- [expiry.requeue] [expiry.replace] [purge.whole] Primary key.
DELETE FROM {schema}.expiries WHERE job = ANY($1::uuid[])

-- name: overdue_expiries
-- Returns up to $1 jobs that have expired (ratchet_core::model::is_expired) and do not run, with
-- their expiries and flags, the longest overdue first, beginning after the expiry $2 and the id
-- $3. Also returns jobs that have ended in another way since the last pass. [expiry.pass]
-- [expiry.limit] expiries_open, read in its order, and the primary key of jobs: OFFSET 0 keeps the planner from
-- hashing a whole table.
SELECT expiry.job, expiry.expires_at, job.flags
FROM {schema}.expiries AS expiry
CROSS JOIN LATERAL (
    SELECT state, flags FROM {schema}.jobs AS job WHERE job.id = expiry.job OFFSET 0
) AS job
WHERE NOT expiry.closed AND expiry.expires_at <= (SELECT {now}) AND job.state <> 3
  AND (expiry.expires_at, expiry.job) > ($2::bigint, $3::uuid)
ORDER BY expiry.expires_at, expiry.job
LIMIT $1

-- name: close_expiries
-- Marks those of these locked jobs that have expired as found by a pass, and returns them.
-- [expiry.pass] Primary key.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.expiries AS expiry SET closed = true
FROM clock
WHERE expiry.job = ANY($1::uuid[]) AND NOT expiry.closed AND expiry.expires_at <= clock.now
RETURNING expiry.job
