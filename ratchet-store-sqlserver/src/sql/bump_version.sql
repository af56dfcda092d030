-- The next version of a namespace. Within a transaction. [version.bump] Primary key of versions. Two
-- callers that meet at a namespace that has none yet may leave one with an error (duplicate key): it
-- begins again.
DECLARE @now bigint = {now};
UPDATE {schema}.versions SET version = CASE WHEN version >= @now THEN version + 1 ELSE @now END
WHERE namespace = @P1;
IF @@ROWCOUNT = 0 INSERT INTO {schema}.versions (namespace, version) VALUES (@P1, @now);
SELECT version FROM {schema}.versions WHERE namespace = @P1
