-- Gives unfinished jobs another priority. [priority.job] Primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET priority = @P2
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 < 4
