-- Whether a schema exists, whether the present role may use it and may make tables in it, and
-- whether it could make the schema.
SELECT namespace.oid IS NOT NULL,
       coalesce(has_schema_privilege(namespace.oid, 'USAGE'), false),
       coalesce(has_schema_privilege(namespace.oid, 'CREATE'), false),
       has_database_privilege(current_database(), 'CREATE'),
       current_user::text, current_database()::text
FROM (SELECT) AS one
LEFT JOIN pg_catalog.pg_namespace AS namespace ON namespace.nspname = $1
