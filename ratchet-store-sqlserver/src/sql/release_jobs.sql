-- Lets jobs be claimed that wait for nothing any more. [link.release] [signal.deliver]
-- Primary key of jobs.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET state = 0, run_at = CASE WHEN job.run_at > @now THEN job.run_at ELSE @now END
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 = 1
