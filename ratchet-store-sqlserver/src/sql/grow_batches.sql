-- Counts new children of open batches, which are locked. [batch.join] Primary key of batches.
UPDATE batch SET total = batch.total + grown.count
FROM {schema}.batches AS batch
JOIN (SELECT CONVERT(binary(16), given.id, 2) AS id, given.count
      FROM OPENJSON(@P1) WITH (id char(32), count bigint) AS given) AS grown
    ON batch.id = grown.id
