-- Deletes ended nodes that own no claim. [node.forget] Primary key; jobs_running.
DELETE FROM {schema}.nodes
WHERE node IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1)) AND status >= 3
  AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job WHERE job.state = 3 AND job.node = nodes.node)
