-- How jobs have ended, those among them that have. [link.decide] Primary keys.
SELECT job.id, job.state, job.flags,
       CASE WHEN job.flags & 16 = 16
            THEN (SELECT result FROM {schema}.job_notes WHERE job = job.id) END
FROM {schema}.jobs AS job
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 >= 4
