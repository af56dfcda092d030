-- Binds the locks of one session, $1 and $2, to another, $3 and $4. Whoever has taken one of them
-- over meanwhile keeps it. Reads the whole table, once for each new connection: there are few locks.
UPDATE {schema}.locks SET session_pid = $3, session_start = $4
WHERE session_pid = $1 AND session_start = $2
