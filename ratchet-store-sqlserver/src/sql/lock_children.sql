-- Locks the jobs that have open links on these parents, until the transaction ends: whoever looks at
-- their links in a later statement sees what was decided before. [link.decide] [batch.callback]
-- links_open and the primary key of jobs. The rows are written as they were: that locks them
-- everywhere.
DECLARE @wanted TABLE (parent binary(16) NOT NULL, kind smallint NOT NULL,
                       PRIMARY KEY (parent, kind));
DECLARE @child TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (parent, kind)
SELECT DISTINCT CONVERT(binary(16), given.parent, 2), given.kind
FROM OPENJSON(@P1) WITH (parent char(32), kind smallint) AS given;
INSERT INTO @child (id)
SELECT DISTINCT link.child
FROM @wanted AS wanted
JOIN {schema}.links AS link
    ON link.parent = wanted.parent AND link.kind = wanted.kind AND link.state = 0;
UPDATE job SET flags = job.flags
FROM @child AS child
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = child.id;
SELECT job.id, job.state, job.flags
FROM @child AS child
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = child.id
