-- The newest route: whether another process has added some, or the database was restored.
-- Primary key of ratchet_routes.
SELECT id, stamp FROM ratchet_routes ORDER BY id DESC LIMIT 1
