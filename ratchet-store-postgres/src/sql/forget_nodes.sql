-- Deletes ended nodes that own no claim. [node.forget] Primary key; jobs_running.
DELETE FROM {schema}.nodes AS node
WHERE node.node = ANY($1::uuid[]) AND node.status >= 3
  AND NOT EXISTS (SELECT FROM {schema}.jobs AS job WHERE job.state = 3 AND job.node = node.node)
