-- Makes waiting jobs due at a time (@P2), or so long from now (@P3). [reschedule.job] [lane.reschedule]
-- Primary key of jobs.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET run_at = COALESCE(@P2, @now + @P3)
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 IN (0, 1, 2)
