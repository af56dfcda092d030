-- What an action must know of jobs, which stay as they are until the transaction ends.
-- [act.respond] Primary keys. The rows are written as they were: that locks them everywhere.
DECLARE @locked TABLE (id binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL,
                       flags smallint NOT NULL);
UPDATE {schema}.jobs WITH (ROWLOCK) SET flags = flags
OUTPUT inserted.id, inserted.state, inserted.flags INTO @locked
WHERE id IN (SELECT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1));
SELECT locked.id, locked.state, locked.flags, data.unique_key
FROM @locked AS locked
LEFT JOIN {schema}.job_data AS data ON data.id = locked.id AND locked.flags & 1 = 1
ORDER BY locked.id
