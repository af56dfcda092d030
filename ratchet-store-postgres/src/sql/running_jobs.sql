-- Every running job in order of id, with its timeouts and its node: what
-- ratchet_core::model::ReclaimRequest::lost judges. [reclaim.dead] [reclaim.start]
-- jobs_running: as many rows as there are claims, however many jobs there are.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
SELECT node.node, node.label, node.status, node.running, node.capacity, node.interval,
       node.started_at, node.last_seen, node.connections, node.cpu_percent, node.memory_bytes,
       node.roles, node.capabilities,
       clock.now, job.id, job.claim_seq, job.crash_count, job.cancel_requested, job.claimed_at,
       job.last_report, job.node, data.timeout, data.stall_timeout, job.flags
FROM {schema}.jobs AS job
CROSS JOIN clock
LEFT JOIN {schema}.nodes AS node ON node.node = job.node
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & 2 = 2
WHERE job.state = 3
ORDER BY job.id
