-- Locks the jobs that have open links on these parents, until the transaction ends: whoever looks at
-- their links in a later statement sees what was decided before. [link.decide] [batch.callback]
-- links_open and the primary key of jobs. The rows are written as they were: that locks them
-- everywhere.
DECLARE @child TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @child (id)
SELECT DISTINCT link.child
FROM OPENJSON(@P1) WITH (parent char(32), kind smallint) AS wanted
JOIN {schema}.links AS link ON link.parent = CONVERT(binary(16), wanted.parent, 2)
    AND link.kind = wanted.kind AND link.state = 0;
UPDATE {schema}.jobs WITH (ROWLOCK) SET flags = flags WHERE id IN (SELECT id FROM @child);
SELECT id, state, flags FROM {schema}.jobs WHERE id IN (SELECT id FROM @child)
