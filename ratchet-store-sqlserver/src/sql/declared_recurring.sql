-- The definitions that were declared before a node began, if the node has a row; nobody changes them
-- until the transaction ends. [recurring.retire] The rows are written as they were: that locks them
-- everywhere. Their conditions are looked at again then.
DECLARE @began bigint = (SELECT started_at FROM {schema}.nodes WHERE node = CONVERT(binary(16), @P1));
DECLARE @declared TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @declared (name)
SELECT name FROM {schema}.recurring WHERE declared = 1 AND created_at < @began;
UPDATE held SET declared = held.declared
FROM @declared AS declared
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, ROWLOCK) ON held.name = declared.name;
SELECT held.name, held.created_at, @began
FROM @declared AS declared
INNER LOOP JOIN {schema}.recurring AS held WITH (FORCESEEK, UPDLOCK, ROWLOCK)
    ON held.name = declared.name
WHERE held.declared = 1 AND held.created_at < @began
ORDER BY held.name
