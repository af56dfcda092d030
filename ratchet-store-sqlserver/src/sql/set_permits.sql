-- Sets how many permits a resource has, which makes it known; whether that changed anything (1 or 0).
-- Two callers that meet at a resource that is not known yet may leave one with an error (duplicate
-- key): it begins again. [permit.change] Waits for the claims that hold the row. Primary key.
DECLARE @changed int;
BEGIN TRANSACTION;
UPDATE {schema}.permits SET max_held = @P2 WHERE resource = @P1 AND max_held <> @P2;
SET @changed = @@ROWCOUNT;
IF @changed = 0
BEGIN
    INSERT INTO {schema}.permits (resource, max_held)
    SELECT @P1, @P2 WHERE NOT EXISTS (SELECT 1 FROM {schema}.permits WHERE resource = @P1);
    SET @changed = @@ROWCOUNT;
END;
COMMIT TRANSACTION;
SELECT @changed
