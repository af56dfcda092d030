-- What an action must know of jobs, which stay as they are until the transaction ends.
-- [act.respond] Primary keys; locked in order of id, as every call does.
SELECT job.id, job.state, job.flags,
       CASE WHEN job.flags & 1 = 1
            THEN (SELECT unique_key FROM {schema}.job_data AS data WHERE data.id = job.id) END
FROM {schema}.jobs AS job
WHERE job.id = ANY($1::uuid[])
ORDER BY job.id
FOR NO KEY UPDATE OF job
