-- The replication slots that keep old versions of rows, the oldest first: the server does not say since
-- when. [diag.read] Reads the state of the server.
SELECT slot_name::text,
       concat_ws(', ', slot_type, CASE WHEN active THEN 'in use' ELSE 'nobody uses it' END),
       NULL::bigint, greatest(age(xmin), age(catalog_xmin))
FROM pg_catalog.pg_replication_slots
WHERE $1 <> '' AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL)
ORDER BY 4 DESC
LIMIT 100
