-- The archive.

-- name: archive_jobs
-- Stores the documents of jobs in the archive, replacing documents of the same ids.
-- [archive.move] Primary key of archive.
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {schema}.archive (id, state, finished_at, queue, kind, document, archived_at)
SELECT given.id, given.state, given.finished_at, given.queue, given.kind, given.document, clock.now
FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::text[])
    AS given (id, state, finished_at, queue, kind, document)
CROSS JOIN clock
ON CONFLICT (id) DO UPDATE
SET state = excluded.state, finished_at = excluded.finished_at, queue = excluded.queue,
    kind = excluded.kind, document = excluded.document, archived_at = excluded.archived_at

-- name: get_archived
-- Returns the archived jobs with these ids. [archive.get] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive WHERE id = ANY($1::uuid[])

-- name: list_archived_oldest list_archived_newest
-- Lists the archived jobs that ended in given states ($1), of the queue $3 if $2 and of the kind $5
-- if $4, after the job $6, in the order of the page. [archive.list] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive
WHERE id {behind} $6 AND state = ANY($1::smallint[])
  AND (NOT $2::boolean OR queue = $3) AND (NOT $4::boolean OR kind = $5)
ORDER BY id{descending}
LIMIT $7

-- name: purge_archive
-- Deletes the archived jobs that finished longest ago, except those that another transaction has
-- locked. [archive.purge] archive_finished, read in its order, and the primary key.
WITH clock AS MATERIALIZED (SELECT {now} AS now),
old AS MATERIALIZED (
    SELECT id FROM {schema}.archive
    WHERE finished_at < (SELECT now FROM clock) - $1::bigint
    ORDER BY finished_at, id
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.archive WHERE id = ANY(ARRAY(SELECT id FROM old))
