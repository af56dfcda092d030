-- The tables and indexes that carry Ratchet's prefix.
SELECT name FROM sqlite_schema
WHERE name LIKE 'ratchet\_%' ESCAPE '\' AND type IN ('table', 'index')
ORDER BY name
