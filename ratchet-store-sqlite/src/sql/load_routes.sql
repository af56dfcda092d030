-- The routes that are not in the cache yet.
-- Primary key of ratchet_routes.
SELECT id, queue, kind, capability, permit FROM ratchet_routes WHERE id > ?1 ORDER BY id
