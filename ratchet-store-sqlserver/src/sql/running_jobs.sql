-- Every running job in order of id, with its timeouts, its node, and when the first of all nodes
-- began: what ratchet_core::model::ReclaimRequest::lost judges.
-- [reclaim.dead] [reclaim.unknown] [reclaim.start]
-- jobs_running: as many rows as there are claims, however many jobs there are. Where readers wait, those
-- that somebody has are left to the next sweep.
DECLARE @now bigint = {now};
SELECT node.node, node.label, node.status, node.running, node.capacity, node.interval,
       node.started_at, node.last_seen, node.connections, node.cpu_percent, node.memory_bytes,
       node.roles, node.capabilities,
       @now, job.id, job.claim_seq, job.crash_count, job.cancel_requested, job.claimed_at,
       job.last_report, job.node, data.timeout, data.stall_timeout, job.flags,
       registry.since
FROM {schema}.jobs AS job WITH (ROWLOCK{passing})
CROSS JOIN (SELECT MIN(started_at) AS since FROM {schema}.nodes) AS registry
LEFT JOIN {schema}.nodes AS node ON node.node = job.node
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & 2 = 2
WHERE job.state = 3
ORDER BY job.id
