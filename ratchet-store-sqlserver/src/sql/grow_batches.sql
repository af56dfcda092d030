-- Counts new children of open batches, which are locked. [batch.join] Primary key of batches.
DECLARE @grown TABLE (id binary(16) NOT NULL PRIMARY KEY, count bigint NOT NULL);
INSERT INTO @grown (id, count)
SELECT CONVERT(binary(16), given.id, 2), given.count
FROM OPENJSON(@P1) WITH (id char(32), count bigint) AS given;
UPDATE batch SET total = batch.total + grown.count
FROM @grown AS grown
INNER LOOP JOIN {schema}.batches AS batch WITH (FORCESEEK, ROWLOCK) ON batch.id = grown.id
