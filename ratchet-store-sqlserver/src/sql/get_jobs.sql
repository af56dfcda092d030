-- Jobs with everything known about them, or without what may be large. [get.whole] [get.outline]
-- Primary keys. The tags are one JSON text.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, job.state, job.route, job.priority, job.run_at, job.created_at, job.finished_at,
       job.attempts, job.crash_count, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
       data.id, CASE WHEN @P2 = 1 THEN data.payload ELSE N'null' END, data.retry,
       data.timeout, data.stall_timeout, data.unique_key, data.idempotency_key,
       data.traceparent, data.tracestate,
       notes.[percent], notes.message, CASE WHEN @P2 = 1 THEN notes.[checkpoint] END,
       CASE WHEN @P2 = 1 THEN notes.result END, notes.last_error,
       data.lane, data.recurring, data.slot, data.payload_version, job.flags,
       route.queue, route.kind, route.capability, route.permit
FROM {schema}.jobs AS job
LEFT JOIN {schema}.routes AS route ON route.id = job.route
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
WHERE job.id IN (SELECT id FROM @wanted)
