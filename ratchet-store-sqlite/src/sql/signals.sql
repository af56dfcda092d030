-- Signals.

-- name: add_signal
-- Makes a new job wait for a signal. [signal.wait]
INSERT INTO ratchet_signals (job, key, timeout, deadline) VALUES (?1, ?2, ?3, ?4)

-- name: find_signal
-- Returns the signal that a job waits or waited for. [signal.answer] [get.whole] Uses the primary
-- key of ratchet_signals.
SELECT key, timeout, deadline, state, delivered_at, payload FROM ratchet_signals WHERE job = ?1

-- name: waiting_signals
-- Returns the jobs that wait for a signal with this key, unless it is too late for them
-- (ratchet_core::links::is_too_late). [signal.deliver] [signal.late] Uses ratchet_signals_key.
SELECT job FROM ratchet_signals INDEXED BY ratchet_signals_key
WHERE key = ?1 AND state = 0 AND deadline > ?2
ORDER BY job

-- name: overdue_signals
-- Returns the jobs whose signal did not arrive in time, the longest overdue first. [signal.expire]
-- [signal.limit] Uses ratchet_signals_deadline, read in its order.
SELECT job FROM ratchet_signals INDEXED BY ratchet_signals_deadline
WHERE state = 0 AND deadline <= ?1
ORDER BY deadline, job
LIMIT ?2

-- name: take_signal
-- Delivers a signal to a job that waits for it. [signal.deliver] [signal.once] Uses the primary key
-- of ratchet_signals.
UPDATE ratchet_signals SET state = 1, delivered_at = ?2, payload = ?3 WHERE job = ?1 AND state = 0

-- name: fail_waiting
-- Fails a job whose signal did not arrive. [signal.expire] Uses the primary key of ratchet_jobs.
UPDATE ratchet_jobs SET state = 5, finished_at = ?2 WHERE id = ?1 AND state = 1

-- name: renew_signal
-- Makes a requeued job wait again for a signal that was not delivered. Returns a row if the job now
-- waits. [link.requeue] Uses the primary key of ratchet_signals.
UPDATE ratchet_signals SET state = 0, deadline = ?2 + timeout WHERE job = ?1 AND state <> 1
RETURNING job

-- name: signal_was_had
-- Returns whether a signal with this key was delivered to a job. [signal.answer] Uses
-- ratchet_signals_key.
SELECT EXISTS (
    SELECT 1 FROM ratchet_signals INDEXED BY ratchet_signals_key WHERE key = ?1 AND state = 1)

-- name: close_signal
-- Marks the signal of a job that ended without it as closed. [signal.late] Uses the primary key of
-- ratchet_signals.
UPDATE ratchet_signals SET state = 2 WHERE job = ?1 AND state = 0

-- name: purge_signal
-- Deletes the signal of a purged job. [purge.old] Uses the primary key.
DELETE FROM ratchet_signals WHERE job = ?1
