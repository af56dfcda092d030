-- Links between jobs.

-- name: add_links
-- Links new jobs to their parents. [link.wait]
INSERT INTO {schema}.links (child, place, kind, parent, `condition`)
SELECT UNHEX(given.child), given.place, given.kind, UNHEX(given.parent), given.`condition`
FROM {rows $1 (child id, place int, kind smallint, parent id, condition text)} AS given

-- name: flag_parents
-- Flags jobs as parents and locks them until the transaction ends. Returns those that exist, with
-- their states. A concurrent settlement either waits for this transaction and then sees the flag,
-- or this statement waits for the settlement and then sees its result. [link.enqueue]
-- [link.missing] Primary key of jobs; locked in order of id, as in every call.
BEGIN;
SELECT id, state FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE id IN ($1) ORDER BY id FOR UPDATE;
UPDATE {schema}.jobs FORCE INDEX (PRIMARY) SET flags = flags | {children}
WHERE id IN ($1) AND flags & {children} = 0;
COMMIT

-- name: find_ended
-- Returns those of these jobs that have ended, and how they ended. [link.decide] Primary keys. The
-- snapshot of a transaction of the application may be older than the end of a job. So reads with
-- locks, and first creates the missing rows of job_notes: a lock on a row that does not exist would
-- keep other transactions from storing results.
INSERT INTO {schema}.job_notes (job)
SELECT id FROM {schema}.jobs FORCE INDEX (PRIMARY)
WHERE {within} AND id IN ($1) AND state >= 4 AND flags & {children} <> 0
ON DUPLICATE KEY UPDATE job = VALUES(job);
SELECT job.id, job.state, job.flags,
       CASE WHEN job.flags & {children} <> 0
            THEN (SELECT notes.result FROM {schema}.job_notes AS notes WHERE notes.job = job.id
                  LOCK IN SHARE MODE) END
FROM {schema}.jobs AS job FORCE INDEX (PRIMARY)
WHERE job.id IN ($1) AND job.state >= 4
LOCK IN SHARE MODE

-- name: awaited_parents
-- Returns those of these locked jobs that have unfinished children.
-- [purge.awaited] [archive.awaited] links_parent and the primary key of jobs.
SELECT parent.id
FROM {schema}.jobs AS parent FORCE INDEX (PRIMARY)
WHERE parent.id IN ($1) AND EXISTS (
    SELECT 1 FROM {schema}.links AS link
    STRAIGHT_JOIN {schema}.jobs AS child FORCE INDEX (PRIMARY) ON child.id = link.child
    WHERE link.parent = parent.id AND link.kind = 0 AND child.state < 4
)

-- name: lock_children
-- Locks the jobs that have open links to these parents until the transaction ends. A later
-- statement that reads their links then sees all earlier decisions. [link.decide] [batch.callback]
-- links_open and the primary key of jobs; locked in order of id, as in every call.
BEGIN;
SELECT {hex link.child} INTO @children
FROM (
    SELECT DISTINCT link.child
    FROM {rows $1 (parent id, kind smallint)} AS given
    STRAIGHT_JOIN {schema}.links AS link FORCE INDEX (links_open)
      ON link.parent = UNHEX(given.parent) AND link.kind = given.kind AND link.state = 0
    ORDER BY link.child
) AS link;
SELECT job.id, job.state, job.flags
FROM {list @children} AS child
STRAIGHT_JOIN {schema}.jobs AS job FORCE INDEX (PRIMARY) ON job.id = UNHEX(child.id)
ORDER BY child.place
FOR UPDATE;
COMMIT

-- name: undecided_links
-- Returns the open links of jobs, and whether each job waits for a signal. [link.decide] Locks the
-- links, because a transaction of the application may have an old snapshot. Primary keys of links
-- and of signals.
SELECT link.child, link.place, link.kind, link.parent, link.state, link.`condition`,
       EXISTS (SELECT 1 FROM {schema}.signals AS awaited
               WHERE awaited.job = link.child AND awaited.state = 0)
FROM {schema}.links AS link FORCE INDEX (PRIMARY)
WHERE link.child IN ($1) AND link.state = 0
ORDER BY link.child, link.place
FOR UPDATE

-- name: decide_links
-- Stores the decisions on open links. [link.decide] [link.once] Primary key of links.
UPDATE {rows $1 (child id, place int, state smallint)} AS given
STRAIGHT_JOIN {schema}.links AS link FORCE INDEX (PRIMARY) ON link.child = UNHEX(given.child) AND link.place = given.place
SET link.state = given.state
WHERE link.state = 0

-- name: open_links
-- Returns which of these jobs have open links. [link.requeue] [signal.deliver] Primary key of
-- links.
SELECT DISTINCT child FROM {schema}.links FORCE INDEX (PRIMARY) WHERE child IN ($1) AND state = 0

-- name: links_of
-- Returns the links of jobs to their parents. [link.parents] [link.decide] Primary key of links.
SELECT child, place, kind, parent, state, `condition`
FROM {schema}.links FORCE INDEX (PRIMARY)
WHERE child IN ($1)
ORDER BY child, place

-- name: children_of
-- Returns the links to a parent, from the children after $3. [link.children] links_parent.
SELECT child, place, kind, parent, state, `condition`
FROM {schema}.links FORCE INDEX (links_parent)
WHERE parent = $1 AND kind = $2 AND child > $3
ORDER BY child, place
LIMIT $4
