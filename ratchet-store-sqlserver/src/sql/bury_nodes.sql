-- Makes the nodes dead that have not been heard of since they were found silent. [node.silent]
DECLARE @silent TABLE (node binary(16) NOT NULL PRIMARY KEY, last_seen bigint NOT NULL);
DECLARE @buried TABLE (node binary(16) NOT NULL);
INSERT INTO @silent (node, last_seen)
SELECT CONVERT(binary(16), given.node, 2), given.last_seen
FROM OPENJSON(@P1) WITH (node char(32), last_seen bigint) AS given;
UPDATE {schema}.nodes SET status = 4
OUTPUT inserted.node INTO @buried
FROM @silent AS silent{seek nodes}
WHERE nodes.node = silent.node
  AND nodes.last_seen = silent.last_seen AND nodes.status < 3
OPTION (FORCE ORDER, LOOP JOIN);
SELECT node FROM @buried
