-- Lets requeued jobs wait for their signals again, but for those that have had theirs; who waits.
-- [link.requeue] Primary key of signals.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.signals AS signal SET state = 0, deadline = clock.now + signal.timeout
FROM clock
WHERE signal.job = ANY($1::uuid[]) AND signal.state <> 1
RETURNING signal.job
