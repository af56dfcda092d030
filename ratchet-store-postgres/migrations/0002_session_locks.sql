-- Locks that end with the session of their holder: which session of the server that is, its process
-- and when it began, in microseconds since 1970. Both are none for a lock that only time ends.
ALTER TABLE {schema}.locks
    ADD COLUMN session_pid integer,
    ADD COLUMN session_start bigint;
