-- What an action must know of jobs, which stay as they are until the transaction ends.
-- [act.respond] Primary keys. The rows are written as they were: that locks them everywhere.
UPDATE {schema}.jobs WITH (ROWLOCK) SET flags = flags
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1));
SELECT job.id, job.state, job.flags, data.unique_key
FROM {schema}.jobs AS job
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & 1 = 1
WHERE job.id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
ORDER BY job.id
