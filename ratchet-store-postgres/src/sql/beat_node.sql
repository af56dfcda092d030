-- A heartbeat of a node that is known; no row comes back if it is not. Each row has a claim that
-- somebody wants cancelled, or none. [node.heartbeat] [node.reply] [node.cancel] [cancel.running]
-- $3 has for each stored status what NodeStatus::after_heartbeat makes of it.
-- Primary key, no index has what changes; jobs_running: as many rows as there are claims.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
beat AS (
    UPDATE {schema}.nodes AS node
    SET label = $2, status = ($3::smallint[])[node.status + 1], running = $4, capacity = $5,
        interval = $6, last_seen = clock.now
    FROM clock
    WHERE node.node = $1
    RETURNING node.status, clock.now
)
SELECT beat.now, beat.status, job.id, job.claim_seq
FROM beat
LEFT JOIN {schema}.jobs AS job ON job.state = 3 AND job.cancel_requested AND job.node = $1
ORDER BY job.id
