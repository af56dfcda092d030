-- Deletes recurring definitions. [recurring.delete] [recurring.retire] Primary key of recurring.
DELETE FROM {schema}.recurring WHERE name = ANY($1::text[])
