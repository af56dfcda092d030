-- Lets nobody else claim jobs that need these resources, nor change how many may, until the
-- transaction ends; in order, so that no two claims wait for each other. [permit.max] [permit.change]
-- Primary key.
SELECT resource FROM {schema}.permits WHERE resource = ANY($1::text[])
ORDER BY resource
FOR NO KEY UPDATE
