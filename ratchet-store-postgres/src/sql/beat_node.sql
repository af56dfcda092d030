-- A heartbeat of a node that is known; no row comes back if it is not. Each row has a claim of the
-- node, or none if it has no claims.
-- [node.heartbeat] [node.reply] [node.previous] [node.claims] [node.cancel] [node.others] [cancel.running]
-- $3 has for each stored status what NodeStatus::after_heartbeat makes of it.
-- Primary key, no index has what changes; the small table; jobs_running: the rows of this node.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
beat AS (
    UPDATE {schema}.nodes AS node
    SET label = $2, status = ($3::smallint[])[node.status + 1], running = $4, capacity = $5,
        interval = $6, last_seen = clock.now, connections = $7, cpu_percent = $8,
        memory_bytes = $9, roles = $10, capabilities = $11, kinds = $12, totals = $13
    FROM clock
    CROSS JOIN (SELECT last_seen FROM {schema}.nodes WHERE node = $1) AS before
    WHERE node.node = $1
    RETURNING node.status, clock.now, before.last_seen
),
others AS (
    SELECT count(*) AS live, max(started_at) AS newest
    FROM {schema}.nodes WHERE node <> $1 AND status < 3
)
SELECT beat.now, beat.status, job.id, job.claim_seq, job.cancel_requested, others.live,
       others.newest, beat.last_seen, job.claimed_at
FROM beat
CROSS JOIN others
LEFT JOIN {schema}.jobs AS job ON job.state = 3 AND job.node = $1
ORDER BY job.id
