-- Every node, the newest first. [node.list] [node.silent]
-- Reads the whole, small table.
SELECT node, label, status, running, capacity, interval, started_at, last_seen,
       connections, cpu_percent, memory_bytes, roles, capabilities, {now},
       kinds, totals
FROM {schema}.nodes
ORDER BY started_at DESC, node
