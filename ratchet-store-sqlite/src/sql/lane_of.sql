-- The queue and the lane a job was enqueued with. [lane.requeue] Primary keys.
SELECT route.queue, data.lane
FROM ratchet_jobs AS job
JOIN ratchet_routes AS route ON route.id = job.route
JOIN ratchet_job_data AS data ON data.id = job.data
WHERE job.id = ?1 AND data.lane IS NOT NULL
