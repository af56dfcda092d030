-- The routes that are not in the cache yet, after the last one that is.
-- Primary key of routes.
SELECT id, queue, kind, capability, permit FROM {schema}.routes WHERE id >= @P1 ORDER BY id
