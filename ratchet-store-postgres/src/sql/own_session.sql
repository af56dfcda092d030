-- The session of this connection: its process and when it began, none if this role may not see that;
-- and the time now. Both in microseconds since 1970, by the server's clock.
SELECT session.pid, floor(extract(epoch FROM session.backend_start) * 1000000)::bigint,
       floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM pg_catalog.pg_stat_activity AS session WHERE session.pid = pg_backend_pid()
