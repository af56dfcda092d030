-- Those of these jobs, which are locked, that have children which have not ended.
-- [purge.awaited] [archive.awaited] links_parent and the primary key of jobs.
SELECT parent.id
FROM {schema}.jobs AS parent
WHERE parent.id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1))
  AND EXISTS (SELECT 1 FROM {schema}.links AS link
              JOIN {schema}.jobs AS child ON child.id = link.child
              WHERE link.parent = parent.id AND link.kind = 0 AND child.state < 4)
