-- The archive.

-- name: archive_due
-- Returns up to ?5 jobs of a state that finished before ?2, the earliest first, after the last one
-- read (?3, ?4), except parents that unfinished children may still read. [archive.old]
-- [archive.awaited] [archive.poison] Uses ratchet_jobs_finished, read in its order,
-- ratchet_links_parent and primary keys.
SELECT job.id, job.data, job.finished_at, job.flags
FROM ratchet_jobs AS job INDEXED BY ratchet_jobs_finished
WHERE job.state = ?1 AND job.state >= 4 AND job.finished_at < ?2
  AND (job.finished_at, job.id) > (?3, ?4)
  AND (job.flags & {children} = 0 OR NOT EXISTS (
      SELECT 1 FROM ratchet_links AS link CROSS JOIN ratchet_jobs AS child ON child.id = link.child
      WHERE link.parent = job.id AND link.kind = 0 AND child.state < 4))
ORDER BY job.finished_at, job.id
LIMIT ?5

-- name: archive_job
-- Stores the document of a job in the archive, replacing a document of the same id. [archive.move]
-- Uses the primary key of ratchet_archive.
INSERT OR REPLACE INTO ratchet_archive
    (id, state, finished_at, archived_at, queue, kind, document)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)

-- name: get_archived
-- Returns an archived job. [archive.get] Uses the primary key of ratchet_archive.
SELECT id, archived_at, document FROM ratchet_archive WHERE id = ?1

-- name: list_archived_oldest list_archived_newest
-- Lists the archived jobs that ended in some states (bits of ?1), of a queue (?2; NULL means any)
-- and of a kind (?3; NULL means any), after the id ?4, in the order of the page. [archive.list]
-- Uses the primary key of ratchet_archive.
SELECT id, archived_at, document FROM ratchet_archive
WHERE id {behind} ?4 AND (?1 >> state) & 1 AND (?2 IS NULL OR queue = ?2) AND (?3 IS NULL OR kind = ?3)
ORDER BY id{descending}
LIMIT ?5

-- name: purge_archive
-- Deletes up to ?2 archived jobs that finished before ?1, the earliest first. [archive.purge] Uses
-- ratchet_archive_finished, read in its order.
DELETE FROM ratchet_archive
WHERE id IN (SELECT id FROM ratchet_archive WHERE finished_at < ?1 ORDER BY finished_at, id LIMIT ?2)
