-- Makes the nodes dead that have not been heard of since they were found silent. [node.silent]
DECLARE @silent TABLE (node binary(16) NOT NULL PRIMARY KEY, last_seen bigint NOT NULL);
DECLARE @buried TABLE (node binary(16) NOT NULL);
INSERT INTO @silent (node, last_seen)
SELECT CONVERT(binary(16), given.node, 2), given.last_seen
FROM OPENJSON(@P1) WITH (node char(32), last_seen bigint) AS given;
UPDATE lost SET status = 4
OUTPUT inserted.node INTO @buried
FROM @silent AS silent
INNER LOOP JOIN {schema}.nodes AS lost WITH (FORCESEEK, ROWLOCK) ON lost.node = silent.node
WHERE lost.last_seen = silent.last_seen AND lost.status < 3;
SELECT node FROM @buried
