-- Locks the jobs that have open links on these parents, until the transaction ends: whoever looks at
-- their links in a later statement sees what was decided before. [link.decide] [batch.callback]
-- links_open and the primary key of jobs; locked in order of id, as every call does.
SELECT job.id, job.state, job.flags
FROM {schema}.jobs AS job
WHERE job.id = ANY(ARRAY(
    SELECT link.child
    FROM unnest($1::uuid[], $2::smallint[]) AS wanted (parent, kind)
    CROSS JOIN LATERAL (
        SELECT child FROM {schema}.links
        WHERE parent = wanted.parent AND kind = wanted.kind AND state = 0
        OFFSET 0
    ) AS link
))
ORDER BY job.id
FOR NO KEY UPDATE OF job
