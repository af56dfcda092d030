-- The next version of a namespace. [version.bump] Primary key of versions. Two callers that meet at a
-- namespace that has none yet may leave one with an error (duplicate key): it begins again.
DECLARE @bumped TABLE (version bigint NOT NULL);
UPDATE {schema}.versions SET version = version + 1 OUTPUT inserted.version INTO @bumped
WHERE namespace = @P1;
IF NOT EXISTS (SELECT 1 FROM @bumped)
    INSERT INTO {schema}.versions (namespace, version) OUTPUT inserted.version INTO @bumped
    VALUES (@P1, 1);
SELECT version FROM @bumped
