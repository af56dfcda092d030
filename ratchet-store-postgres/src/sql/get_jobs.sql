-- Jobs with everything known about them, or without what may be large. [get.whole] [get.outline]
-- Primary keys.
SELECT job.id, job.state, job.route, job.priority, job.run_at, job.created_at, job.finished_at,
       job.attempts, job.crash_count, job.claim_seq, job.node, job.claimed_at, job.cancel_requested,
       data.id, CASE WHEN $2 THEN data.payload ELSE 'null' END, data.retry,
       data.timeout, data.stall_timeout, data.unique_key, data.idempotency_key,
       data.traceparent, data.tracestate,
       notes.percent, notes.message, CASE WHEN $2 THEN notes.checkpoint END,
       CASE WHEN $2 THEN notes.result END, notes.last_error,
       data.lane, data.recurring, data.slot,
       CASE WHEN job.flags & 64 = 64
            THEN (SELECT string_agg(tagged.tag, E'\n') FROM {schema}.job_tags AS tagged
                  WHERE tagged.job = job.id) END,
       data.payload_version, job.flags,
       route.queue, route.kind, route.capability, route.permit
FROM {schema}.jobs AS job
LEFT JOIN {schema}.routes AS route ON route.id = job.route
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id
WHERE job.id = ANY($1::uuid[])
