-- The indexes in a schema. [diag.read] Reads the catalog.
SELECT CAST(indexes.name AS nvarchar(128))
FROM sys.indexes AS indexes
JOIN sys.tables AS tables ON tables.object_id = indexes.object_id
JOIN sys.schemas AS schemas ON schemas.schema_id = tables.schema_id
WHERE schemas.name = @P1 AND indexes.name IS NOT NULL AND indexes.is_disabled = 0
