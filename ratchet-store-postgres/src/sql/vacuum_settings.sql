-- The tables of the schema for which autovacuum is off, and whether it is on for the server; a row
-- without a table is about the server only. [diag.read] Reads the catalog.
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
