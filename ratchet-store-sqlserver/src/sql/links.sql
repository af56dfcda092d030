-- Links between jobs.

-- name: add_links
-- Links new jobs to their parents. [link.wait]
INSERT INTO {schema}.links (child, place, kind, parent, condition)
SELECT CONVERT(binary(16), given.child, 2), given.place, given.kind,
       CONVERT(binary(16), given.parent, 2), {text given.condition}
FROM OPENJSON(@P1) WITH (child char(32), place int, kind smallint, parent char(32),
                         condition {long}) AS given

-- name: flag_parents
-- Flags jobs as parents and locks them until the transaction ends. Returns those that exist, with
-- their states. A concurrent settlement either waits for this transaction and then sees the flag,
-- or this statement waits for the settlement and then sees its result. [link.enqueue]
-- [link.missing] Primary key of jobs. A row that already has the flag is written too, which locks
-- it.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET flags = job.flags | {children}
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id;
SELECT job.id, job.state
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, UPDLOCK, ROWLOCK) ON job.id = wanted.id

-- name: find_ended
-- Returns those of these jobs that have ended, and how they ended. [link.decide] Primary keys.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, job.state, job.flags, CASE WHEN job.flags & {children} = {children} THEN notes.result END
FROM {schema}.jobs AS job
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id AND job.flags & {children} = {children}
WHERE job.id IN (SELECT id FROM @wanted) AND job.state + 0 >= 4

-- name: awaited_parents
-- Returns those of these locked jobs that have unfinished children. [purge.awaited]
-- [archive.awaited] links_parent and the primary key of jobs.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT parent.id
FROM {schema}.jobs AS parent
WHERE parent.id IN (SELECT id FROM @wanted)
  AND EXISTS (SELECT 1 FROM {schema}.links AS link
              JOIN {schema}.jobs AS child ON child.id = link.child
              WHERE link.parent = parent.id AND link.kind = 0 AND child.state < 4)

-- name: lock_children
-- Locks the jobs that have open links to these parents until the transaction ends. A later
-- statement that reads their links then sees all earlier decisions. [link.decide] [batch.callback]
-- links_open and the primary key of jobs. The rows are written unchanged, which locks them on every
-- server.
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

-- name: undecided_links
-- Returns the open links of jobs, and whether each job waits for a signal. [link.decide] Primary
-- keys of links and of signals.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT link.child, link.place, link.kind, link.parent, link.state, link.condition,
       CAST(CASE WHEN signal.job IS NULL THEN 0 ELSE 1 END AS bit)
FROM {schema}.links AS link
LEFT JOIN {schema}.signals AS signal ON signal.job = link.child AND signal.state = 0
WHERE link.child IN (SELECT id FROM @wanted) AND link.state = 0
ORDER BY link.child, link.place

-- name: decide_links
-- Stores the decisions on open links. [link.decide] [link.once] Primary key of links.
DECLARE @decided TABLE (child binary(16) NOT NULL, place int NOT NULL, state smallint NOT NULL,
                        PRIMARY KEY (child, place));
INSERT INTO @decided (child, place, state)
SELECT CONVERT(binary(16), given.child, 2), given.place, given.state
FROM OPENJSON(@P1) WITH (child char(32), place int, state smallint) AS given;
UPDATE link SET state = decided.state
FROM @decided AS decided
INNER LOOP JOIN {schema}.links AS link WITH (FORCESEEK, ROWLOCK)
    ON link.child = decided.child AND link.place = decided.place
WHERE link.state = 0

-- name: open_links
-- Returns which of these jobs have open links. [link.requeue] [signal.deliver] Primary key of
-- links.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT DISTINCT child FROM {schema}.links
WHERE child IN (SELECT id FROM @wanted) AND state = 0

-- name: links_of
-- Returns the links of jobs to their parents. [link.parents] [link.decide] Primary key of links.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE child IN (SELECT id FROM @wanted)
ORDER BY child, place

-- name: children_of
-- Returns the links to a parent, from the children after @P3. [link.children] links_parent.
SELECT TOP (@P4) child, place, kind, parent, state, condition
FROM {schema}.links
WHERE parent = CONVERT(binary(16), @P1) AND kind = @P2 AND child > CONVERT(binary(16), @P3)
ORDER BY child, place
