-- Every node, the newest first. [node.list] [node.silent] [reclaim.dead]
-- Reads the whole, small table.
SELECT node, label, status, running, capacity, interval, started_at, last_seen
FROM ratchet_nodes
ORDER BY started_at DESC, node
