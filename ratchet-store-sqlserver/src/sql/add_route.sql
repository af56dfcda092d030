-- Keeps a route of a first job; a duplicate if somebody else did or took the number meanwhile. Only
-- who sees the largest id committed can make the next one.
INSERT INTO {schema}.routes (id, queue, kind, capability, permit)
SELECT COALESCE(MAX(id), 0) + 1, @P1, @P2, @P3, @P4 FROM {schema}.routes
