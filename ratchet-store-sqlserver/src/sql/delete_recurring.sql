-- Deletes recurring definitions. [recurring.delete] [recurring.retire] Primary key of recurring.
DELETE FROM {schema}.recurring WHERE name IN (SELECT {name value} FROM OPENJSON(@P1))
