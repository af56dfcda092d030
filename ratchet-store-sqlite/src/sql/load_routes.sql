-- The last route in the cache and those after it, with their stamps.
-- Primary key of ratchet_routes.
SELECT id, stamp, queue, kind, capability, permit FROM ratchet_routes WHERE id >= ?1 ORDER BY id
