-- How a job has ended. [link.decide] Primary keys.
SELECT job.state, job.flags, notes.result
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_notes AS notes ON notes.job = job.id
WHERE job.id = ?1 AND job.state >= 4
