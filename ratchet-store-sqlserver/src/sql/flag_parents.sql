-- Notes that others are linked to jobs, which stay as they are until the transaction ends; the jobs
-- that there are, with their states. A settlement at the same time waits for this and sees the flag
-- then, or is waited for here and seen. [link.enqueue] [link.missing] Primary key of jobs. The row is
-- written even if it has the flag: that is what locks it.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET flags = job.flags | 16
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id;
SELECT job.id, job.state
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = wanted.id
