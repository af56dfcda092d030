-- Gives the first @P5 due jobs in claim order to a node (@P6); with their payloads if @P7.
-- [claim.exclusive] [claim.due] [claim.limit] [claim.order] [claim.aging] [claim.match]
-- [claim.paused] [claim.live] [claim.running] [claim.whole] [claim.version]
-- @P1 are the wanted routes with their queues and how many of each to look at (none: as many as of
-- all), @P2 and @P8 the last route that the caller knows (0: none) and its stamp: if another one is the
-- last, nothing is claimed. @P3 is the aging interval, @P4 how many candidates to look at.
--
-- One range of jobs_claim per route and priority, read in its order and without locks; the candidates
-- are merged by the rank of ratchet_core::priority::ClaimRank. Then as many as are wanted are locked, in
-- that order, and what is locked is changed. Rows that somebody else has locked are passed over
-- (READPAST), which works where they are come by in a range and not where a whole key is sought: so they
-- are sought by a range of their id. Where hints do nothing, the second of two claims waits for the
-- first, and then finds the rows changed (the conditions at the end): it is short, and the caller looks
-- again. A candidate may also have been made due later since it was read, so the conditions are looked
-- at again once it is locked.
-- What is claimed is read before the commit: who cannot read it has not claimed it.
-- The lock of the application's kind is shared by all claims; a pause takes it alone, so that no claim
-- that began before is still going on when the pause returns. (Where hints do nothing, claims take it
-- alone too: statements.rs.)
DECLARE @now bigint = {now};
DECLARE @proven int = 0, @looked bigint, @got int, @node binary(16) = CONVERT(binary(16), @P6);
DECLARE @due TABLE (rank bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY, id binary(16) NOT NULL);
DECLARE @held TABLE (id binary(16) NOT NULL PRIMARY KEY);
DECLARE @taken TABLE (id binary(16) NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id binary(16) NOT NULL PRIMARY KEY, claim_seq bigint NOT NULL,
                        route int NOT NULL, priority smallint NOT NULL, run_at bigint NOT NULL,
                        attempts int NOT NULL, crash_count int NOT NULL, flags smallint NOT NULL);
BEGIN TRANSACTION;
EXEC @got = sp_getapplock @Resource = {claims}, @LockMode = '{together}', @LockOwner = 'Transaction',
                          @LockTimeout = {lock_timeout};
IF @got < 0 THROW 50001, N'a queue is being paused, which takes too long', 1;
IF (@P2 = 0 OR EXISTS (SELECT 1 FROM {schema}.routes WHERE id = @P2 AND stamp = @P8))
    AND NOT EXISTS (SELECT 1 FROM {schema}.routes WHERE id > @P2)
    SET @proven = 1;
IF @proven = 1 AND NOT EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = @node AND status <> 1)
    INSERT INTO @due (id)
    SELECT TOP (@P4) due.id
    FROM OPENJSON(@P1) WITH (route int, queue nvarchar(256), most bigint) AS wanted
    CROSS JOIN (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
    CROSS APPLY (
        SELECT TOP (CASE WHEN wanted.most < @P4 THEN wanted.most ELSE @P4 END)
               job.run_at, job.id
        FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
        WHERE job.state = 0 AND job.route = wanted.route AND job.priority = level.priority
          AND job.run_at <= @now
        ORDER BY job.run_at, job.id
    ) AS due
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.paused_queues AS paused
                      WHERE paused.queue = {name wanted.queue})
    ORDER BY level.priority + CASE WHEN @P3 > 0 THEN (@now - due.run_at) / @P3 ELSE 0 END DESC,
             due.run_at, due.id;
SET @looked = (SELECT COUNT_BIG(*) FROM @due);
IF @looked > 0
BEGIN
    INSERT INTO @held (id)
    SELECT TOP (@P5) locked.id
    FROM @due AS due
    INNER LOOP JOIN {schema}.jobs AS locked
        WITH (INDEX(jobs_pkey), FORCESEEK, UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        ON {range locked.id due.id}
    WHERE locked.state + 0 = 0 AND locked.run_at <= @now
    ORDER BY due.rank;
    UPDATE {schema}.jobs
    SET state = 3, claim_seq = jobs.claim_seq + 1, node = @node, claimed_at = @now, last_report = NULL,
        cancel_requested = 0
    OUTPUT inserted.id INTO @taken
    FROM @held AS held{seek jobs}
    WHERE jobs.id = held.id
      AND jobs.state + 0 = 0 AND jobs.run_at <= @now
    OPTION (FORCE ORDER, LOOP JOIN);
END;
INSERT INTO @claimed (id, claim_seq, route, priority, run_at, attempts, crash_count, flags)
SELECT id, claim_seq, route, priority, run_at, attempts, crash_count, flags FROM {schema}.jobs
WHERE id IN (SELECT id FROM @taken);
SELECT @proven, @looked, @now,
       claimed.id, claimed.claim_seq, claimed.route, claimed.priority, claimed.run_at,
       claimed.attempts, claimed.crash_count,
       data.id, data.retry, data.timeout, data.stall_timeout, data.traceparent, data.tracestate,
       CASE WHEN @P7 = 1 THEN data.payload END,
       CASE WHEN @P7 = 1 AND claimed.claim_seq > 1 THEN notes.[checkpoint] END,
       data.lane, data.payload_version, claimed.flags
FROM (SELECT 1 AS one) AS one
LEFT JOIN @claimed AS claimed ON 1 = 1
LEFT JOIN {schema}.job_data AS data ON data.id = claimed.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = claimed.id AND claimed.claim_seq > 1;
COMMIT TRANSACTION
