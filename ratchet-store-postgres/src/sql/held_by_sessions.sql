-- The sessions that keep old versions of rows of this database from being removed, standbys that ask for
-- it among them, the oldest first. [diag.read] Reads the state of the server; whoever may not see other
-- sessions sees no times. Those that clean up hold nothing.
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
