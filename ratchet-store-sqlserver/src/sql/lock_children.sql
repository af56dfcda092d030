-- Locks the jobs that have open links on these parents, until the transaction ends: whoever looks at
-- their links in a later statement sees what was decided before. [link.decide] [batch.callback]
-- links_open and the primary key of jobs. The rows are written as they were: that locks them
-- everywhere.
UPDATE {schema}.jobs WITH (ROWLOCK) SET flags = flags
OUTPUT inserted.id, inserted.state, inserted.flags
WHERE id IN (
    SELECT link.child
    FROM OPENJSON(@P1) WITH (parent char(32), kind smallint) AS wanted
    JOIN {schema}.links AS link ON link.parent = CONVERT(binary(16), wanted.parent, 2)
        AND link.kind = wanted.kind AND link.state = 0
)
