-- Delivers a signal to those of these jobs, which are locked, that wait for theirs and for which it
-- is not too late (ratchet_core::links::is_too_late). [signal.deliver] [signal.once] [signal.late]
-- Primary key of signals.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.signals AS signal SET state = 1, delivered_at = clock.now, payload = $2
FROM clock
WHERE signal.job = ANY($1::uuid[]) AND signal.state = 0 AND signal.deadline > clock.now
RETURNING signal.job
