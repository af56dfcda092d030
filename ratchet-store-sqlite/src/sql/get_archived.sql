-- An archived job. [archive.get] Primary key of ratchet_archive.
SELECT id, archived_at, document FROM ratchet_archive WHERE id = ?1
