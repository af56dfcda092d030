-- The indexes of the schema that the server does not use. [diag.read] Reads the catalog.
SELECT class.relname::text
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS class ON class.oid = index.indexrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = $1 AND NOT (index.indisvalid AND index.indisready AND index.indislive)
ORDER BY class.relname
