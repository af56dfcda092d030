-- Makes the nodes dead that have not been heard of since they were found silent. [node.silent]
UPDATE {schema}.nodes AS node SET status = 4
FROM unnest($1::uuid[], $2::bigint[]) AS silent (node, last_seen)
WHERE node.node = silent.node AND node.last_seen = silent.last_seen AND node.status < 3
RETURNING node.node
