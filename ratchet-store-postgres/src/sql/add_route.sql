-- Keeps a route of a first job, unless somebody else did or took the number meanwhile; then no row
-- comes back. Only who sees the largest id committed can make the next one.
INSERT INTO {schema}.routes (id, queue, kind, capability, permit)
SELECT coalesce(max(id), 0) + 1, $1, $2, $3, $4 FROM {schema}.routes
ON CONFLICT DO NOTHING
RETURNING id
