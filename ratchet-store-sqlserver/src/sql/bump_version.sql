-- The next version of a namespace. Within a transaction. [version.bump] Primary key of versions. Two
-- callers that meet at a namespace that has none yet may leave one with an error (duplicate key): it
-- begins again.
UPDATE {schema}.versions SET version = version + 1 WHERE namespace = @P1;
IF @@ROWCOUNT = 0 INSERT INTO {schema}.versions (namespace, version) VALUES (@P1, 1);
SELECT version FROM {schema}.versions WHERE namespace = @P1
