-- Links between jobs.

-- name: add_links
-- Links new jobs to their parents. [link.wait]
INSERT INTO {schema}.links (child, place, kind, parent, condition)
SELECT child, place, kind, parent, condition
FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::uuid[], $5::text[])
    AS new (child, place, kind, parent, condition)

-- name: flag_parents
-- Flags jobs as parents and locks them until the transaction ends. Returns those that exist, with
-- their states. A concurrent settlement either waits for this transaction and then sees the flag,
-- or this statement waits for the settlement and then sees its result. [link.enqueue]
-- [link.missing] Primary key of jobs; locked in order of id, as in every call.
WITH parent AS MATERIALIZED (
    SELECT id, state, flags FROM {schema}.jobs
    WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
),
flagged AS (
    UPDATE {schema}.jobs AS job SET flags = job.flags | {children}
    WHERE job.id = ANY(ARRAY(SELECT id FROM parent WHERE flags & {children} = 0))
)
SELECT id, state FROM parent

-- name: find_ended
-- Returns those of these jobs that have ended, and how they ended. [link.decide] Primary keys.
SELECT job.id, job.state, job.flags,
       CASE WHEN job.flags & {children} = {children}
            THEN (SELECT result FROM {schema}.job_notes WHERE job = job.id) END
FROM {schema}.jobs AS job
WHERE job.id = ANY($1::uuid[]) AND job.state + 0 >= 4

-- name: awaited_parents
-- Returns those of these locked jobs that have unfinished children.
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

-- name: lock_children
-- Locks the jobs that have open links to these parents until the transaction ends. A later
-- statement that reads their links then sees all earlier decisions. [link.decide] [batch.callback]
-- links_open and the primary key of jobs; locked in order of id, as in every call.
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

-- name: undecided_links
-- Returns the open links of jobs, and whether each job waits for a signal. [link.decide]
-- Primary keys of links and of signals.
SELECT link.child, link.place, link.kind, link.parent, link.state, link.condition,
       EXISTS (SELECT FROM {schema}.signals WHERE job = link.child AND state = 0 OFFSET 0)
FROM {schema}.links AS link
WHERE link.child = ANY($1::uuid[]) AND link.state = 0
ORDER BY link.child, link.place

-- name: decide_links
-- Stores the decisions on open links. [link.decide] [link.once] Primary key of links.
UPDATE {schema}.links AS link SET state = decided.state
FROM unnest($1::uuid[], $2::integer[], $3::smallint[]) AS decided (child, place, state)
WHERE link.child = decided.child AND link.place = decided.place AND link.state = 0

-- name: open_links
-- Returns which of these jobs have open links. [link.requeue] [signal.deliver] Primary key of
-- links.
SELECT DISTINCT child FROM {schema}.links WHERE child = ANY($1::uuid[]) AND state = 0

-- name: links_of
-- Returns the links of jobs to their parents. [link.parents] [link.decide] Primary key of links.
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE child = ANY($1::uuid[])
ORDER BY child, place

-- name: children_of
-- Returns the links to a parent, from the children after $3. [link.children] links_parent.
SELECT child, place, kind, parent, state, condition
FROM {schema}.links
WHERE parent = $1 AND kind = $2
  AND child > $3
ORDER BY child, place
LIMIT $4
