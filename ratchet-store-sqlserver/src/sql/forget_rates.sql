-- Forgets the keys whose time has passed, but for those that somebody is just using. [rate.forget]
-- Reads the table, which has a row for each key that was used since the last pass; what is deleted is
-- come by in a range of its key, so that locked rows are passed over, and looked at again.
DECLARE @now bigint = {now} * 1000;
DECLARE @idle TABLE ([key] nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY);
INSERT INTO @idle ([key])
SELECT TOP (@P1) [key] FROM {schema}.rates WITH (ROWLOCK{passing}) WHERE tat <= @now;
DELETE rate
FROM @idle AS idle
INNER LOOP JOIN {schema}.rates AS rate WITH (FORCESEEK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON {range rate.[key] idle.[key]}
WHERE rate.tat <= @now
