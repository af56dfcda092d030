-- The jobs that have open links on these parents. [link.decide] [batch.callback] links_parent.
SELECT DISTINCT link.child
FROM unnest($1::uuid[], $2::smallint[]) AS wanted (parent, kind)
CROSS JOIN LATERAL (
    SELECT child FROM {schema}.links
    WHERE parent = wanted.parent AND kind = wanted.kind AND state = 0
    OFFSET 0
) AS link
