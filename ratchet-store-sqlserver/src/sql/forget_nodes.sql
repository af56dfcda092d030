-- Deletes ended nodes that own no claim. [node.forget] Primary key; jobs_running.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
DELETE ended
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.nodes AS ended WITH (FORCESEEK, ROWLOCK) ON ended.node = wanted.id
WHERE ended.status >= 3
  AND NOT EXISTS (SELECT 1 FROM {schema}.jobs AS job WHERE job.state = 3 AND job.node = ended.node)
