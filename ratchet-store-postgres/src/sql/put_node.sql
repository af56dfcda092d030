-- The first heartbeat of a node: if it joins, the live nodes with its label are dead.
-- [node.heartbeat] [node.label] Reads the small table.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
displaced AS (
    UPDATE {schema}.nodes SET status = 4
    WHERE $3 = 0 AND label = $2 AND status < 3
      AND NOT EXISTS (SELECT FROM {schema}.nodes AS known WHERE known.node = $1)
)
INSERT INTO {schema}.nodes (node, label, status, running, capacity, interval, started_at, last_seen,
                            connections, cpu_percent, memory_bytes, roles, capabilities,
                            kinds, totals)
SELECT $1, $2, $3, $4, $5, $6, now, now, $7, $8, $9, $10, $11, $12, $13
FROM clock
ON CONFLICT (node) DO NOTHING
