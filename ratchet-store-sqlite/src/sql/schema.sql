-- The schema, its migrations, and the state of the file that diagnostics and wakeups read.

-- name: create_migrations
-- Creates the table that records the applied migrations.
CREATE TABLE ratchet_migrations (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT

-- name: add_migration
-- Records that a migration was applied.
INSERT INTO ratchet_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)

-- name: applied_migrations
-- Returns the applied migrations, in order.
SELECT version, name, checksum FROM ratchet_migrations ORDER BY version

-- name: own_objects
-- Returns the tables and indexes with Ratchet's prefix.
SELECT name FROM sqlite_schema
WHERE name LIKE 'ratchet\_%' ESCAPE '\' AND type IN ('table', 'index')
ORDER BY name

-- name: journal_mode
-- Returns the journal mode, which determines whether readers and the writer block each other.
-- [diag.read] Reads a setting.
PRAGMA journal_mode

-- name: data_version
-- Returns a number that changes when another connection commits. Reads the header of the log.
PRAGMA data_version
