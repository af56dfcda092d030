-- A heartbeat of a node that is known; no row comes back if it is not. Each row has a claim of the
-- node, or none if it has no claims.
-- [node.heartbeat] [node.reply] [node.previous] [node.claims] [node.cancel] [node.others] [cancel.running]
-- @P14 to @P18 are what NodeStatus::after_heartbeat makes of each stored status.
-- Primary key, no index has what changes; the small table; jobs_running: the rows of this node. Where
-- readers wait for writers, a claim that another call is writing is left to the next heartbeat.
DECLARE @now bigint = {now};
DECLARE @previous bigint = (SELECT last_seen FROM {schema}.nodes
                           WHERE node = CONVERT(binary(16), @P1));
UPDATE {schema}.nodes
SET label = @P2,
    status = CASE status WHEN 0 THEN @P14 WHEN 1 THEN @P15 WHEN 2 THEN @P16 WHEN 3 THEN @P17
             ELSE @P18 END,
    running = @P3, capacity = @P4, interval = @P5, last_seen = @now, connections = @P6,
    cpu_percent = @P7, memory_bytes = @P8, roles = @P9, capabilities = @P10,
    kinds = CASE WHEN @P12 = 1 THEN @P11 END, totals = NULLIF(@P13, N'')
WHERE node = CONVERT(binary(16), @P1);
SELECT @now, beat.status, job.id, job.claim_seq, job.cancel_requested, others.live, others.newest,
       @previous, job.claimed_at
FROM {schema}.nodes AS beat
CROSS JOIN (SELECT COUNT_BIG(*) AS live, MAX(started_at) AS newest FROM {schema}.nodes
            WHERE node <> CONVERT(binary(16), @P1) AND status < 3) AS others
LEFT JOIN {schema}.jobs AS job WITH (ROWLOCK{passing})
    ON job.state = 3 AND job.node = CONVERT(binary(16), @P1)
WHERE beat.node = CONVERT(binary(16), @P1)
ORDER BY job.id
