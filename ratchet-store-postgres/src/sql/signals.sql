-- Signals.

-- name: add_signals
-- Makes new jobs wait for signals. [signal.wait]
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {schema}.signals (job, key, timeout, deadline)
SELECT new.job, new.key, new.timeout, clock.now + new.timeout
FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS new (job, key, timeout)
CROSS JOIN clock

-- name: signals_of
-- Returns the signals that jobs wait for or waited for, and whether it is too late to deliver each
-- (ratchet_core::links::is_too_late). [signal.answer] [get.whole] Primary key of signals.
SELECT job, key, timeout, deadline, state, delivered_at, payload, deadline <= {now}
FROM {schema}.signals
WHERE job = ANY($1::uuid[])

-- name: waiting_signals
-- Returns the jobs that wait for a signal with this key. [signal.deliver] signals_key.
SELECT job FROM {schema}.signals WHERE key = $1 AND state = 0

-- name: overdue_signals
-- Returns the jobs whose signal did not arrive in time, the longest overdue first. [signal.expire]
-- [signal.limit] signals_deadline, read in its order.
SELECT job FROM {schema}.signals
WHERE state = 0 AND deadline <= (SELECT {now})
ORDER BY deadline, job
LIMIT $1

-- name: take_signals
-- Delivers a signal to those of these locked jobs that wait for it, unless it is too late
-- (ratchet_core::links::is_too_late). [signal.deliver] [signal.once] [signal.late]
-- Primary key of signals.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.signals AS signal SET state = 1, delivered_at = clock.now, payload = $2
FROM clock
WHERE signal.job = ANY($1::uuid[]) AND signal.state = 0 AND signal.deadline > clock.now
RETURNING signal.job

-- name: miss_signals
-- Marks the overdue signals of these locked jobs as missed, and returns these signals.
-- [signal.expire] [signal.once] Primary key of signals.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.signals AS signal SET state = 2
FROM clock
WHERE signal.job = ANY($1::uuid[]) AND signal.state = 0 AND signal.deadline <= clock.now
RETURNING signal.job, signal.key, signal.timeout

-- name: renew_signals
-- Makes requeued jobs wait again for the signals that were not delivered, and returns the jobs that
-- wait again. [link.requeue] Primary key of signals.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.signals AS signal SET state = 0, deadline = clock.now + signal.timeout
FROM clock
WHERE signal.job = ANY($1::uuid[]) AND signal.state <> 1
RETURNING signal.job

-- name: signal_was_had
-- Returns whether a signal with this key was delivered to a job. [signal.answer] signals_key.
SELECT EXISTS (SELECT FROM {schema}.signals WHERE key = $1 AND state = 1)
