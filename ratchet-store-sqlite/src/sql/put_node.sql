-- Stores a node as its heartbeat leaves it. [node.heartbeat] Primary key; no index has these.
INSERT INTO ratchet_nodes (node, label, status, running, capacity, interval, started_at, last_seen)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (node) DO UPDATE
SET label = excluded.label, status = excluded.status, running = excluded.running,
    capacity = excluded.capacity, interval = excluded.interval, last_seen = excluded.last_seen
