-- Lets nobody else claim jobs that need these resources, nor change how many may, until the
-- transaction ends. [permit.max] [permit.change] Primary key. The rows are written as they were: that
-- locks them everywhere.
UPDATE {schema}.permits SET max_held = max_held
WHERE resource IN (SELECT {name value} FROM OPENJSON(@P1))
