-- The tables and indexes in a schema.
SELECT class.relname::text
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = $1 AND class.relkind IN ('r', 'p', 'i', 'v', 'm', 'f')
