-- Forgets the keys whose time has passed, but for those that somebody is just using. [rate.forget]
-- Reads the table, which has a row for each key that was used since the last pass.
DECLARE @now bigint = {now} * 1000;
DELETE FROM {schema}.rates
WHERE tat <= @now AND [key] IN (
    SELECT TOP (@P1) [key] FROM {schema}.rates WITH (UPDLOCK, READPAST, ROWLOCK) WHERE tat <= @now
)
