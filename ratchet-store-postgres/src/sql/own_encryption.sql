-- Whether the server encrypts this connection. No row if the server does not say.
-- [diag.read] Reads the view of the server's own sessions.
SELECT ssl FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid()
