-- Where a connection leads to and what may be done on it; $1 is the schema, $2 are its tables.
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
