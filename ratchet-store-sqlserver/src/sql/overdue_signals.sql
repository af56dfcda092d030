-- The jobs whose signal did not come in time, the longest overdue first. [signal.expire]
-- [signal.limit] signals_deadline, read in its order.
DECLARE @now bigint = {now};
SELECT TOP (@P1) job FROM {schema}.signals
WHERE state = 0 AND deadline <= @now
ORDER BY deadline, job
