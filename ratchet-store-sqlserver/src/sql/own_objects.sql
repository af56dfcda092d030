-- The tables in a schema.
SELECT CAST(tables.name AS nvarchar(128))
FROM sys.tables AS tables
JOIN sys.schemas AS schemas ON schemas.schema_id = tables.schema_id
WHERE schemas.name = @P1
