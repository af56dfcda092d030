-- Takes the unique keys that are free; of several jobs that want one, the first given has it. A key
-- that is taken in this moment is a duplicate. [keys.unique] [keys.race] [requeue.key]
INSERT INTO {schema}.unique_keys ([key], job)
SELECT wanted.name, CONVERT(binary(16), wanted.job, 2)
FROM (SELECT given.name, given.job,
             ROW_NUMBER() OVER (PARTITION BY given.name ORDER BY given.place) AS turn
      FROM (SELECT {name listed.name} AS name, listed.job, listed.place
            FROM OPENJSON(@P1) WITH (name nvarchar(256), job char(32), place int)
                AS listed) AS given) AS wanted
WHERE wanted.turn = 1
  AND NOT EXISTS (SELECT 1 FROM {schema}.unique_keys AS held WHERE held.[key] = wanted.name)
