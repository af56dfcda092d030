-- How jobs have ended, those among them that have. [link.decide] Primary keys.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, job.state, job.flags, CASE WHEN job.flags & 16 = 16 THEN notes.result END
FROM {schema}.jobs AS job
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id AND job.flags & 16 = 16
WHERE job.id IN (SELECT id FROM @wanted) AND job.state + 0 >= 4
