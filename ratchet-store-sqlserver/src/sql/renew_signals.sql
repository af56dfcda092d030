-- Lets requeued jobs wait for their signals again, but for those that have had theirs; who waits.
-- [link.requeue] Primary key of signals.
DECLARE @now bigint = {now};
UPDATE {schema}.signals SET state = 0, deadline = @now + timeout
OUTPUT inserted.job
WHERE job IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND state <> 1
