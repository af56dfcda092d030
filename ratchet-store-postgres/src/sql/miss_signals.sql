-- Notes that those of these jobs, which are locked, that still wait for their signal wait in vain;
-- what they waited for. [signal.expire] [signal.once] Primary key of signals.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
UPDATE {schema}.signals AS signal SET state = 2
FROM clock
WHERE signal.job = ANY($1::uuid[]) AND signal.state = 0 AND signal.deadline <= clock.now
RETURNING signal.job, signal.key, signal.timeout
