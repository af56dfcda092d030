-- The jobs whose signal did not come in time, the longest overdue first. [signal.expire]
-- [signal.limit] signals_deadline, read in its order.
SELECT job FROM {schema}.signals
WHERE state = 0 AND deadline <= (SELECT {now})
ORDER BY deadline, job
LIMIT $1
