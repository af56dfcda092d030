-- Signals.

-- name: add_signals
-- Makes new jobs wait for signals. [signal.wait]
DECLARE @now bigint = {now};
INSERT INTO {schema}.signals (job, [key], timeout, deadline)
SELECT CONVERT(binary(16), given.job, 2), {name given.[key]}, given.timeout, @now + given.timeout
FROM OPENJSON(@P1) WITH (job char(32), [key] nvarchar(256), timeout bigint) AS given

-- name: signals_of
-- Returns the signals that jobs wait for or waited for, and whether it is too late to deliver each
-- (ratchet_core::links::is_too_late). [signal.answer] [get.whole] Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, [key], timeout, deadline, state, delivered_at, payload,
       CAST(CASE WHEN deadline <= @now THEN 1 ELSE 0 END AS bit)
FROM {schema}.signals
WHERE job IN (SELECT id FROM @wanted)

-- name: waiting_signals
-- Returns the jobs that wait for a signal with this key. [signal.deliver] signals_key.
SELECT job FROM {schema}.signals WHERE [key] = @P1 AND state = 0

-- name: overdue_signals
-- Returns the jobs whose signal did not arrive in time, the longest overdue first. [signal.expire]
-- [signal.limit] signals_deadline, read in its order.
DECLARE @now bigint = {now};
SELECT TOP (@P1) job FROM {schema}.signals
WHERE state = 0 AND deadline <= @now
ORDER BY deadline, job

-- name: take_signals
-- Delivers a signal to those of these locked jobs that wait for it, unless it is too late
-- (ratchet_core::links::is_too_late). [signal.deliver] [signal.once] [signal.late] Primary key of
-- signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.signals SET state = 1, delivered_at = @now, payload = @P2
OUTPUT inserted.job
FROM @wanted AS wanted{seek signals}
WHERE signals.job = wanted.id
  AND signals.state = 0 AND signals.deadline > @now
OPTION (FORCE ORDER, LOOP JOIN)

-- name: miss_signals
-- Marks the overdue signals of these locked jobs as missed, and returns these signals.
-- [signal.expire] [signal.once] Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.signals SET state = 2
OUTPUT inserted.job, inserted.[key], inserted.timeout
FROM @wanted AS wanted{seek signals}
WHERE signals.job = wanted.id
  AND signals.state = 0 AND signals.deadline <= @now
OPTION (FORCE ORDER, LOOP JOIN)

-- name: renew_signals
-- Makes requeued jobs wait again for the signals that were not delivered, and returns the jobs that
-- wait again. [link.requeue] Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.signals SET state = 0, deadline = @now + signals.timeout
OUTPUT inserted.job
FROM @wanted AS wanted{seek signals}
WHERE signals.job = wanted.id
  AND signals.state <> 1
OPTION (FORCE ORDER, LOOP JOIN)

-- name: signal_was_had
-- Returns whether a signal with this key was delivered to a job. [signal.answer] signals_key.
SELECT CAST(CASE WHEN EXISTS (SELECT 1 FROM {schema}.signals WHERE [key] = @P1 AND state = 1)
                 THEN 1 ELSE 0 END AS bit)
