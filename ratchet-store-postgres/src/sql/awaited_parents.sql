-- Those of these jobs, which are locked, that have children which have not ended.
-- [purge.awaited] [archive.awaited] links_parent and the primary key of jobs.
SELECT wanted.id
FROM unnest($1::uuid[]) AS wanted (id)
WHERE EXISTS (
    SELECT FROM {schema}.links AS link
    CROSS JOIN LATERAL (
        SELECT state FROM {schema}.jobs AS child WHERE child.id = link.child OFFSET 0
    ) AS child
    WHERE link.parent = wanted.id AND link.kind = 0 AND child.state < 4
    OFFSET 0
)
