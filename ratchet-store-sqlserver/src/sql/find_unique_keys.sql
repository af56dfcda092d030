-- The unfinished jobs that have these unique keys. [requeue.key] Primary key of unique_keys.
SELECT [key], job FROM {schema}.unique_keys
WHERE [key] IN (SELECT {name value} FROM OPENJSON(@P1))
