-- Takes the unique keys that are free; of several jobs that want one, the first given has it. A key
-- that is taken in this moment is a duplicate. [keys.unique] [keys.race] [requeue.key]
DECLARE @wanted TABLE (place int NOT NULL PRIMARY KEY, job binary(16) NOT NULL,
                       name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL);
INSERT INTO @wanted (place, job, name)
SELECT given.place, CONVERT(binary(16), given.job, 2), {name given.name}
FROM OPENJSON(@P1) WITH (name nvarchar(256), job char(32), place int) AS given;
INSERT INTO {schema}.unique_keys ([key], job)
SELECT first.name, first.job
FROM (SELECT name, job, ROW_NUMBER() OVER (PARTITION BY name ORDER BY place) AS turn
      FROM @wanted) AS first
WHERE first.turn = 1
  AND NOT EXISTS (SELECT 1 FROM {schema}.unique_keys AS held WHERE held.[key] = first.name)
