-- The definitions that were declared before a node began, if the node has a row; nobody changes them
-- until the transaction ends. [recurring.retire] The rows are written as they were: that locks them
-- everywhere.
DECLARE @began bigint = (SELECT started_at FROM {schema}.nodes WHERE node = CONVERT(binary(16), @P1));
UPDATE {schema}.recurring SET declared = declared WHERE declared = 1 AND created_at < @began;
SELECT name, created_at, @began FROM {schema}.recurring
WHERE declared = 1 AND created_at < @began
ORDER BY name
