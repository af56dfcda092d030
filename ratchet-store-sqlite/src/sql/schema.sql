-- The schema, its migrations, and what diagnostics read of the server.

-- name: create_migrations
-- Where the applied migrations are kept.
CREATE TABLE ratchet_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT

-- name: add_migration
-- Notes that a migration was applied.
INSERT INTO ratchet_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)

-- name: applied_migrations
-- The applied migrations, in order.
SELECT version, name, checksum FROM ratchet_migrations ORDER BY version

-- name: own_objects
-- The tables and indexes that carry Ratchet's prefix.
SELECT name FROM sqlite_schema
WHERE name LIKE 'ratchet\_%' ESCAPE '\' AND type IN ('table', 'index')
ORDER BY name

-- name: journal_mode
-- How writers and readers keep out of each other's way. [diag.read] Reads a setting.
PRAGMA journal_mode

-- name: data_version
-- A number that changes when another connection commits. Reads the header of the log.
PRAGMA data_version
