-- The sessions that keep old versions of rows of this database from being removed, the oldest first.
-- [diag.read] Reads the state of the server; whoever may not see other sessions sees no times.
SELECT pid::text,
       concat_ws(', ', usename, nullif(application_name, ''), state, host(client_addr)),
       (extract(epoch FROM clock_timestamp() - xact_start) * 1000)::bigint,
       age(coalesce(backend_xmin, backend_xid))
FROM pg_catalog.pg_stat_activity
WHERE $1 <> '' AND datname = current_database() AND pid <> pg_backend_pid()
  AND coalesce(backend_xmin, backend_xid) IS NOT NULL
ORDER BY xact_start
LIMIT 100
