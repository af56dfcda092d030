-- Those of these jobs, which are locked, that have children which have not ended.
-- [purge.awaited] [archive.awaited] links_parent and the primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT parent.id
FROM {schema}.jobs AS parent
WHERE parent.id IN (SELECT id FROM @wanted)
  AND EXISTS (SELECT 1 FROM {schema}.links AS link
              JOIN {schema}.jobs AS child ON child.id = link.child
              WHERE link.parent = parent.id AND link.kind = 0 AND child.state < 4)
