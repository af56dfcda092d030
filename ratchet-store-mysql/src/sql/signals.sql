-- Signals.

-- name: add_signals
-- Makes new jobs wait for signals. [signal.wait]
INSERT INTO {schema}.signals (job, `key`, timeout, deadline)
SELECT UNHEX(given.job), given.`key`, given.timeout, {now} + given.timeout
FROM {rows $1 (job id, key name, timeout bigint)} AS given

-- name: signals_of
-- Returns the signals that jobs wait for or waited for, and whether it is too late to deliver each
-- (ratchet_core::links::is_too_late). [signal.answer] [get.whole] Primary key of signals.
SELECT job, `key`, timeout, deadline, state, delivered_at, payload, deadline <= {now}
FROM {schema}.signals FORCE INDEX (PRIMARY)
WHERE job IN ($1)

-- name: waiting_signals
-- Returns the jobs that wait for a signal with this key. [signal.deliver] signals_key.
SELECT job FROM {schema}.signals WHERE `key` = $1 AND state = 0

-- name: overdue_signals
-- Returns the jobs whose signal did not arrive in time, the longest overdue first. [signal.expire]
-- [signal.limit] signals_deadline, read in its order.
SELECT job FROM {schema}.signals FORCE INDEX (signals_deadline)
WHERE state = 0 AND deadline <= {now}
ORDER BY deadline, job
LIMIT $1

-- name: take_signals
-- Delivers a signal to those of these locked jobs that wait for it, unless it is too late
-- (ratchet_core::links::is_too_late). [signal.deliver] [signal.once] [signal.late]
-- Primary key of signals.
SET @now = {now};
BEGIN;
SELECT job FROM {schema}.signals FORCE INDEX (PRIMARY)
WHERE job IN ($1) AND state = 0 AND deadline > @now
FOR UPDATE;
UPDATE {schema}.signals FORCE INDEX (PRIMARY) SET state = 1, delivered_at = @now, payload = $2
WHERE job IN ($1) AND state = 0 AND deadline > @now;
COMMIT

-- name: miss_signals
-- Marks the overdue signals of these locked jobs as missed, and returns these signals.
-- [signal.expire] [signal.once] Primary key of signals.
SET @now = {now};
BEGIN;
SELECT job, `key`, timeout FROM {schema}.signals FORCE INDEX (PRIMARY)
WHERE job IN ($1) AND state = 0 AND deadline <= @now
FOR UPDATE;
UPDATE {schema}.signals FORCE INDEX (PRIMARY) SET state = 2
WHERE job IN ($1) AND state = 0 AND deadline <= @now;
COMMIT

-- name: renew_signals
-- Makes requeued jobs wait again for the signals that were not delivered, and returns the jobs that
-- wait again. [link.requeue] Primary key of signals.
BEGIN;
UPDATE {schema}.signals FORCE INDEX (PRIMARY) SET state = 0, deadline = {now} + timeout
WHERE job IN ($1) AND state <> 1;
SELECT job FROM {schema}.signals FORCE INDEX (PRIMARY) WHERE job IN ($1) AND state = 0;
COMMIT

-- name: signal_was_had
-- Returns whether a signal with this key was delivered to a job. [signal.answer] signals_key.
SELECT EXISTS (SELECT 1 FROM {schema}.signals WHERE `key` = $1 AND state = 1)
