-- Forgets the keys whose time has passed, but for those that somebody is just using. [rate.forget]
-- Reads the table, which has a row for each key that was used since the last pass.
DELETE FROM {schema}.rates
WHERE key = ANY(ARRAY(
    SELECT key FROM {schema}.rates WHERE tat <= {now} * 1000
    LIMIT $1
    FOR UPDATE SKIP LOCKED
))
