-- Sets how many permits a resource has, which makes it known; no row changes if it has so many.
-- [permit.change] Primary key.
INSERT INTO ratchet_permits AS old (resource, max_held) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET max_held = excluded.max_held
WHERE old.max_held <> excluded.max_held
