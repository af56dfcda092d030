-- The definitions that were declared before a node began, if the node has a row; nobody changes them
-- until the transaction ends. [recurring.retire]
SELECT recurring.name, recurring.created_at, node.started_at
FROM {schema}.nodes AS node
JOIN {schema}.recurring AS recurring ON recurring.created_at < node.started_at
WHERE node.node = $1 AND recurring.declared
ORDER BY recurring.name
FOR UPDATE OF recurring
