-- The archived jobs that ended in some states (bits of ?1), of a queue (?2; none: any) and of a kind
-- (?3; none: any) behind one (?4), oldest first. [archive.list] Primary key of ratchet_archive.
SELECT id, archived_at, document FROM ratchet_archive
WHERE id > ?4 AND (?1 >> state) & 1 AND (?2 IS NULL OR queue = ?2) AND (?3 IS NULL OR kind = ?3)
ORDER BY id
LIMIT ?5
