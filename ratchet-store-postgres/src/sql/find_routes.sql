-- The routes of a queue ($1; none: any) and a kind ($2; none: any). [page.filter] [count.filter]
-- Reads the routes, which are few, once.
SELECT id FROM {schema}.routes
WHERE ($1::text IS NULL OR queue = $1) AND ($2::text IS NULL OR kind = $2)
