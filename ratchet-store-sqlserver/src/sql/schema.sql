-- The schema, its migrations, and the server state that diagnostics read.

-- name: create_migrations
-- Creates the table that records the applied migrations.
CREATE TABLE {schema}.migrations (
    version    int NOT NULL,
    name       nvarchar(128) NOT NULL,
    checksum   nvarchar(128) NOT NULL,
    applied_at bigint NOT NULL,
    CONSTRAINT migrations_pkey PRIMARY KEY (version)
)

-- name: applied_migrations
-- Returns the applied migrations, in order.
SELECT version, name, checksum FROM {schema}.migrations ORDER BY version

-- name: own_objects
-- Returns the tables in a schema.
SELECT CAST(tables.name AS nvarchar(128))
FROM sys.tables AS tables
JOIN sys.schemas AS schemas ON schemas.schema_id = tables.schema_id
WHERE schemas.name = @P1

-- name: own_indexes
-- Returns the enabled indexes in a schema. [diag.read] Reads the catalog.
SELECT CAST(indexes.name AS nvarchar(128))
FROM sys.indexes AS indexes
JOIN sys.tables AS tables ON tables.object_id = indexes.object_id
JOIN sys.schemas AS schemas ON schemas.schema_id = tables.schema_id
WHERE schemas.name = @P1 AND indexes.name IS NOT NULL AND indexes.is_disabled = 0

-- name: held_by_sessions
-- Returns the transactions of other sessions in this database that keep old row versions, oldest
-- first, with their age in seconds. Needs the privilege to read the state of the server.
-- [diag.read]
SELECT TOP (100) CAST(held.session_id AS nvarchar(20)),
       CAST(CONCAT(sessions.login_name, N', ', sessions.program_name, N', ', sessions.host_name, N', ',
                   sessions.status) AS nvarchar(1000)),
       CAST(held.elapsed_time_seconds AS bigint)
FROM sys.dm_tran_active_snapshot_database_transactions AS held
JOIN sys.dm_exec_sessions AS sessions ON sessions.session_id = held.session_id
JOIN sys.databases AS databases ON databases.database_id = sessions.database_id
WHERE databases.name = DB_NAME() AND held.session_id <> @@SPID
ORDER BY held.elapsed_time_seconds DESC

-- name: database_settings
-- Returns the name of the database, and whether readers see committed rows without waiting for
-- writers (1). [diag.read]
SELECT CAST(name AS nvarchar(128)),
       CAST(CASE WHEN is_read_committed_snapshot_on = 1 THEN 1 ELSE 0 END AS int)
FROM sys.databases
WHERE name = DB_NAME()
