-- A pending job as its claim will show it, with its payload if ?2. [claim.running] [claim.whole]
-- [claim.version]
-- Primary keys.
SELECT job.claim_seq, job.route, job.priority, job.run_at, job.attempts, job.crash_count,
       data.id, data.retry, data.timeout, data.stall_timeout, data.traceparent, data.tracestate,
       CASE WHEN ?2 THEN data.payload END, job.data, job.flags,
       data.lane, data.payload_version
FROM ratchet_jobs AS job
LEFT JOIN ratchet_job_data AS data ON data.id = job.data
WHERE job.id = ?1 AND job.state = 0
