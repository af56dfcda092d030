-- The schema, its migrations, and the server state that diagnostics read.

-- name: create_migrations
-- Creates the table that records the applied migrations.
CREATE TABLE {schema}.migrations (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at bigint NOT NULL
)

-- name: applied_migrations
-- Returns the applied migrations, in order.
SELECT version, name, checksum FROM {schema}.migrations ORDER BY version

-- name: own_objects
-- Returns the tables and indexes in a schema.
SELECT class.relname::text
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = $1 AND class.relkind IN ('r', 'p', 'i', 'v', 'm', 'f')

-- name: find_schema
-- Returns whether a schema exists, whether the current role may use it and create tables in it, and
-- whether it may create the schema.
SELECT namespace.oid IS NOT NULL,
       coalesce(has_schema_privilege(namespace.oid, 'USAGE'), false),
       coalesce(has_schema_privilege(namespace.oid, 'CREATE'), false),
       has_database_privilege(current_database(), 'CREATE'),
       current_user::text, current_database()::text
FROM (SELECT) AS one
LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = $1

-- name: identify
-- Returns the database that the connection leads to, the role and whether it has all privileges on
-- the tables, and the isolation level. $1 is the schema, $2 are its tables.
SELECT current_database()::text,
       floor(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
       (SELECT class.oid::bigint FROM pg_catalog.pg_class AS class
        WHERE class.relnamespace = namespace.oid AND class.relname = 'jobs'),
       current_user::text,
       coalesce(has_schema_privilege(namespace.oid, 'USAGE'), false)
       AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_class AS class
           WHERE class.relnamespace = namespace.oid AND class.relkind IN ('r', 'p')
             AND class.relname = ANY($2::text[])
             AND NOT (has_table_privilege(class.oid, 'SELECT')
                      AND has_table_privilege(class.oid, 'INSERT')
                      AND has_table_privilege(class.oid, 'UPDATE')
                      AND has_table_privilege(class.oid, 'DELETE'))
       ),
       current_setting('default_transaction_isolation')
FROM (SELECT) AS one
LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = $1

-- name: held_by_sessions
-- Returns the sessions that keep old row versions of this database from being removed, including
-- those of standbys with feedback, oldest first. [diag.read] Reads the state of the server; a role
-- that may not see other sessions sees no times. Leaves out autovacuum workers, which do not keep
-- old row versions.
SELECT pid::text,
       concat_ws(', ', usename, nullif(application_name, ''), nullif(backend_type, 'client backend'),
                 state, host(client_addr)),
       (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint,
       age(coalesce(backend_xmin, backend_xid))
FROM pg_catalog.pg_stat_activity
WHERE $1 <> '' AND (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
  AND coalesce(backend_xmin, backend_xid) IS NOT NULL
  AND coalesce(backend_type, '') <> 'autovacuum worker'
ORDER BY xact_start
LIMIT 100

-- name: held_by_prepared
-- Returns the open prepared transactions of this database, oldest first.
-- [diag.read] Reads the state of the server.
SELECT gid, owner::text,
       (extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint, age(transaction)
FROM pg_catalog.pg_prepared_xacts
WHERE $1 <> '' AND database = current_database()
ORDER BY prepared
LIMIT 100

-- name: held_by_slots
-- Returns the replication slots that keep old row versions, oldest first, without ages, because the
-- server does not record when a slot began to keep them. [diag.read] Reads the state of the server.
SELECT slot_name::text,
       concat_ws(', ', slot_type, CASE WHEN active THEN 'in use' ELSE 'not in use' END),
       NULL::bigint, greatest(age(xmin), age(catalog_xmin))
FROM pg_catalog.pg_replication_slots
WHERE $1 <> '' AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
ORDER BY 4 DESC
LIMIT 100

-- name: invalid_indexes
-- Returns the indexes of the schema that the server does not use. [diag.read] Reads the catalog.
SELECT class.relname::text
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = $1 AND NOT (index.indisvalid AND index.indisready AND index.indislive)
ORDER BY class.relname

-- name: own_encryption
-- Returns whether the server encrypts this connection, or no row if the server does not report
-- this. [diag.read] Reads the view of the server's own sessions.
SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()

-- name: server_state
-- Returns whether the server is a standby, and whether this session is read-only. Reads no table.
SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'

-- name: vacuum_settings
-- Returns the tables of the schema for which autovacuum is off, each with whether it is on for the
-- server. If there is no such table, returns one row without a table. [diag.read] Reads the
-- catalog.
SELECT off.name, current_setting('autovacuum')::boolean
FROM (VALUES (1)) AS one (n)
LEFT JOIN LATERAL (
    SELECT format('%I.%I', namespace.nspname, class.relname) AS name
    FROM pg_catalog.pg_class AS class
    JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_options_to_table(class.reloptions) AS option
    WHERE namespace.nspname = $1 AND class.relkind = 'r'
      AND option.option_name = 'autovacuum_enabled'
      AND option.option_value NOT IN ('true', 'on', '1', 'yes')
) AS off ON true
ORDER BY off.name
