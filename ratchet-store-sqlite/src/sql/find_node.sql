-- One node. [node.heartbeat] Primary key of ratchet_nodes.
SELECT node, label, status, running, capacity, interval, started_at, last_seen
FROM ratchet_nodes
WHERE node = ?1
