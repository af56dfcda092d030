-- Stores a node as its heartbeat leaves it. [node.heartbeat] Primary key; no index has these.
INSERT INTO ratchet_nodes (node, label, status, running, capacity, interval, started_at, last_seen,
                           connections, cpu_percent, memory_bytes, roles, capabilities, kinds,
                           totals)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
ON CONFLICT (node) DO UPDATE
SET label = excluded.label, status = excluded.status, running = excluded.running,
    capacity = excluded.capacity, interval = excluded.interval, last_seen = excluded.last_seen,
    connections = excluded.connections, cpu_percent = excluded.cpu_percent,
    memory_bytes = excluded.memory_bytes, roles = excluded.roles,
    capabilities = excluded.capabilities, kinds = excluded.kinds, totals = excluded.totals
