-- One node. [node.heartbeat] Primary key of ratchet_nodes.
SELECT node, label, status, running, capacity, interval, started_at, last_seen,
       connections, cpu_percent, memory_bytes, roles, capabilities, kinds, totals
FROM ratchet_nodes
WHERE node = ?1
