-- Takes the unique keys that are free, in the order given; one row comes back for each.
-- [keys.unique] [keys.race] [requeue.key]
INSERT INTO {schema}.unique_keys (key, job)
SELECT wanted.key, wanted.job
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS wanted (key, job, place)
ORDER BY wanted.place
ON CONFLICT (key) DO NOTHING
RETURNING job
