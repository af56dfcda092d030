-- What an action must know of jobs, which stay as they are until the transaction ends.
-- [act.respond] Primary keys. The rows are written as they were: that locks them everywhere.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET flags = job.flags
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id;
SELECT job.id, job.state, job.flags, data.unique_key
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = wanted.id
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & 1 = 1
ORDER BY job.id
