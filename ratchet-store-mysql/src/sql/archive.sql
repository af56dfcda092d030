-- The archive.

-- name: archive_jobs
-- Stores the documents of jobs in the archive, replacing documents of the same ids.
-- [archive.move] Primary key of archive.
INSERT INTO {schema}.archive (id, state, finished_at, queue, kind, document, archived_at)
SELECT UNHEX(given.id), given.state, given.finished_at, given.queue, given.kind, given.document,
       {now}
FROM {rows $1 (id id, state smallint, finished_at bigint, queue name, kind name, document text)}
     AS given
ON DUPLICATE KEY UPDATE state = VALUES(state), finished_at = VALUES(finished_at),
    queue = VALUES(queue), kind = VALUES(kind), document = VALUES(document),
    archived_at = VALUES(archived_at)

-- name: get_archived
-- Returns the archived jobs with these ids. [archive.get] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive FORCE INDEX (PRIMARY) WHERE id IN ($1)

-- name: list_archived_oldest list_archived_newest
-- Lists the archived jobs that ended in given states ($1), of the queue $3 if $2 and of the kind $5
-- if $4, after the job $6, in the order of the page. [archive.list] Primary key of archive.
SELECT id, archived_at, document FROM {schema}.archive FORCE INDEX (PRIMARY)
WHERE id {behind} $6 AND state IN ($1)
  AND (NOT $2 OR queue = $3) AND (NOT $4 OR kind = $5)
ORDER BY id{descending}
LIMIT $7

-- name: purge_archive
-- Deletes the archived jobs that finished longest ago, except those that another transaction has
-- locked. [archive.purge] archive_finished, read in its order, and the primary key.
BEGIN;
SELECT {hex old.id} INTO @old
FROM (SELECT id FROM {schema}.archive FORCE INDEX (archive_finished)
      WHERE finished_at < {now} - $1
      ORDER BY finished_at, id
      LIMIT $2
      FOR UPDATE SKIP LOCKED) AS old;
DELETE archived FROM {list @old} AS old
STRAIGHT_JOIN {schema}.archive AS archived FORCE INDEX (PRIMARY) ON archived.id = UNHEX(old.id);
COMMIT
