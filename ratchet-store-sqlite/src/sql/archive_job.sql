-- Puts the document of a job into the archive, in place of an earlier one with its id.
-- [archive.move] Primary key of ratchet_archive.
INSERT OR REPLACE INTO ratchet_archive
    (id, state, finished_at, archived_at, queue, kind, document)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
