-- The definitions that were declared before a node began, if the node has a row. [recurring.retire]
SELECT recurring.name, recurring.created_at, node.started_at
FROM ratchet_nodes AS node
JOIN ratchet_recurring AS recurring ON recurring.created_at < node.started_at
WHERE node.node = ?1 AND recurring.declared = 1
ORDER BY recurring.name
