-- Lets jobs be claimed that wait for nothing any more. [link.release] [signal.deliver]
-- Primary key of jobs.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.jobs SET state = 0, run_at = CASE WHEN run_at > @now THEN run_at ELSE @now END
WHERE id IN (SELECT id FROM @wanted) AND state = 1
