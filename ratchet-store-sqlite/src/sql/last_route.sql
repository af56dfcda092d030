-- The newest route: whether another process has added some.
-- Primary key of ratchet_routes.
SELECT coalesce(max(id), 0) FROM ratchet_routes
