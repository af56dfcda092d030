-- The prepared transactions of this database, which nobody has ended, the oldest first.
-- [diag.read] Reads the state of the server.
SELECT gid, owner::text,
       (extract(epoch FROM clock_timestamp() - prepared) * 1000)::bigint, age(transaction)
FROM pg_catalog.pg_prepared_xacts
WHERE $1 <> '' AND database = current_database()
ORDER BY prepared
LIMIT 100
