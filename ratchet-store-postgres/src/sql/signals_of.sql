-- What signals jobs wait, or waited, for; and whether it is too late
-- (ratchet_core::links::is_too_late). [signal.answer] [get.whole] Primary key of signals.
SELECT job, key, timeout, deadline, state, delivered_at, payload, deadline <= {now}
FROM {schema}.signals
WHERE job = ANY($1::uuid[])
