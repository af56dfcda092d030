-- Deletes the longest finished of the archived jobs. [archive.purge]
-- ratchet_archive_finished, read in its order.
DELETE FROM ratchet_archive
WHERE id IN (SELECT id FROM ratchet_archive WHERE finished_at < ?1 ORDER BY finished_at, id LIMIT ?2)
