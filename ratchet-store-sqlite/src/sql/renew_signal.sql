-- Lets a requeued job wait for its signal again, unless it has had it; a row if it waits.
-- [link.requeue] Primary key of ratchet_signals.
UPDATE ratchet_signals SET state = 0, deadline = ?2 + timeout WHERE job = ?1 AND state <> 1
RETURNING job
