-- A row if the resource is known. [permit.unknown] Primary key.
SELECT 1 FROM {schema}.permits WHERE resource = @P1
