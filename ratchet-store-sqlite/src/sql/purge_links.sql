-- Deletes what a purged job waited for, but not that others waited for it. [link.kept] Primary key.
DELETE FROM ratchet_links WHERE child = ?1
