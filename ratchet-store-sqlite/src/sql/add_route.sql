-- Keeps a route of a first job; the unique key of ratchet_routes answers for one that exists.
INSERT INTO ratchet_routes (queue, kind, capability, permit, stamp) VALUES (?1, ?2, ?3, ?4, random())
RETURNING id, stamp
