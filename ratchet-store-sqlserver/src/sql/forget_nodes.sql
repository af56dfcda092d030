-- Deletes ended nodes that own no claim. [node.forget] Primary key; jobs_running.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DELETE FROM {schema}.nodes
WHERE node IN (SELECT id FROM @wanted) AND status >= 3
  AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job WHERE job.state = 3 AND job.node = nodes.node)
