-- Claims jobs, and settles, reports on and reclaims claims.

-- name: claim_jobs
-- Claims the first @P5 due jobs in claim order for a node (@P6), with their payloads if @P7.
-- [claim.exclusive] [claim.due] [claim.limit] [claim.order] [claim.aging] [claim.match]
-- [claim.paused] [claim.live] [claim.running] [claim.whole] [claim.version] @P1 are the wanted
-- routes, their queues and kinds, and how many candidates of each to look at (NULL: @P4). @P2 and
-- @P8 are the id (0: none) and the stamp of the last route that the caller has read; if the last
-- route in the table is another one, nothing is claimed. @P3 is the aging interval, @P4 the number
-- of candidates.
--
-- Reads one range of jobs_claim per route and priority, in order and without locks, and merges the
-- candidates by ratchet_core::priority::ClaimRank. Then locks as many of them as are wanted, in
-- that order, and changes the locked rows. The hint READPAST skips rows that another transaction
-- has locked, but only if the server finds the rows in a range and not by a seek of the whole key.
-- So the rows are found by a range of their id. A candidate's due time may have been changed since
-- the candidate was read, so the conditions are checked again once it is locked. Babelfish ignores
-- hints: there, the second of two claims waits for the first, which is short, and then finds that
-- the rows have changed (the conditions of the UPDATE). The caller then repeats the claim.
--
-- The claimed jobs are read before the commit, so a caller that cannot read them has not claimed
-- them. All claims share an application lock. A pause takes it exclusively, so no earlier claim is
-- still running when the pause returns. (On Babelfish, claims take it exclusively too: words.rs.)
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
IF @got < 0 THROW 50001, N'a queue or kind is being paused, which takes too long', 1;
IF (@P2 = 0 OR EXISTS (SELECT 1 FROM {schema}.routes WHERE id = @P2 AND stamp = @P8))
    AND NOT EXISTS (SELECT 1 FROM {schema}.routes WHERE id > @P2)
    SET @proven = 1;
IF @proven = 1 AND NOT EXISTS (SELECT 1 FROM {schema}.nodes WHERE node = @node AND status <> 1)
    INSERT INTO @due (id)
    SELECT TOP (@P4) due.id
    FROM OPENJSON(@P1) WITH (route int, queue nvarchar(256), kind nvarchar(256), most bigint)
        AS wanted
    CROSS JOIN (VALUES (CAST(4 AS smallint)), (3), (2), (1), (0)) AS level (priority)
    CROSS APPLY (
        SELECT TOP (CASE WHEN wanted.most < @P4 THEN wanted.most ELSE @P4 END)
               job.run_at, job.id
        FROM {schema}.jobs AS job WITH (INDEX(jobs_claim), ROWLOCK{passing})
        WHERE job.state = 0 AND job.route = wanted.route AND job.priority = level.priority
          AND job.run_at <= @now
        ORDER BY job.run_at, job.id
    ) AS due
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.pauses AS paused
                      WHERE paused.scope = 0 AND paused.name = {name wanted.queue})
      AND NOT EXISTS (SELECT 1 FROM {schema}.pauses AS paused
                      WHERE paused.scope = 1 AND paused.name = {name wanted.kind})
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

-- name: unclaim_jobs
-- Undoes those claims of this transaction for which no permit is left; no other transaction has
-- seen them. The other columns that a claim wrote have no meaning while a job does not run.
-- [permit.max] Primary key.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE job SET state = 0, claim_seq = job.claim_seq - 1
FROM @wanted AS wanted
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = wanted.id
WHERE job.state + 0 = 3

-- name: load_inputs
-- Returns the inputs (payload and checkpoint) of the claims that are still held. [claim.load]
-- Primary keys.
DECLARE @token TABLE (job binary(16) NOT NULL, seq bigint NOT NULL, node binary(16) NOT NULL,
                      claimed_at bigint NOT NULL);
INSERT INTO @token (job, seq, node, claimed_at)
SELECT CONVERT(binary(16), given.job, 2), given.seq, CONVERT(binary(16), given.node, 2),
       given.claimed_at
FROM OPENJSON(@P1) WITH (job char(32), seq bigint, node char(32), claimed_at bigint) AS given;
SELECT job.id, job.claim_seq, job.node, job.claimed_at, data.payload, notes.[checkpoint]
FROM @token AS token
JOIN {schema}.jobs AS job ON job.id = token.job AND job.claim_seq = token.seq AND job.state + 0 = 3
    AND COALESCE(job.node, 0x00000000000000000000000000000000) = token.node
    AND COALESCE(job.claimed_at, 0) = token.claimed_at
LEFT JOIN {schema}.job_data AS data ON data.id = job.id
LEFT JOIN {schema}.job_notes AS notes ON notes.job = job.id

-- name: settle_jobs
-- Ends claims and changes their jobs accordingly. Returns one row for each claim that was still
-- held. [settle.effect] [settle.mixed] [settle.token] [settle.cancel] [settle.keys]
-- [settle.history] The values come from ratchet_core::model::Settlement::effect.
-- Only this statement knows whether cancellation was requested, so it implements what that function
-- does in this case: Cancelled (6, in the history 5), the same due time, no error and no result,
-- and attempts counted as usual. Skips jobs that would end while other jobs wait for their end (flags:
-- 4 in a lane, 16 has children, 32 in a batch), unless @P2: then the caller applies the effects on
-- the other jobs. With @P2, waits for locked jobs as long as the transaction allows; otherwise only
-- briefly, so that one locked job does not delay the others (held.rs). Primary keys; the tokens are
-- read in order of id, so that all calls lock in the same order.
DECLARE @now bigint = {now};
DECLARE @settlement TABLE (job binary(16) NOT NULL PRIMARY KEY, seq bigint NOT NULL,
                           state smallint NOT NULL, delay bigint NULL, attempts int NOT NULL,
                           outcome smallint NOT NULL, error nvarchar(max) NULL,
                           result nvarchar(max) NULL, ran_for_us bigint NULL,
                           node binary(16) NOT NULL, claimed_at bigint NOT NULL);
DECLARE @settled TABLE (id binary(16) NOT NULL PRIMARY KEY);
DECLARE @ended TABLE (id binary(16) NOT NULL PRIMARY KEY, claim_seq bigint NOT NULL,
                      state smallint NOT NULL, flags smallint NOT NULL, node binary(16) NULL,
                      claimed_at bigint NULL, cancel_requested bit NOT NULL);
INSERT INTO @settlement (job, seq, state, delay, attempts, outcome, error, result, ran_for_us, node,
                         claimed_at)
SELECT CONVERT(binary(16), given.job, 2), given.seq, given.state, given.delay, given.attempts,
       given.outcome, {text given.error}, {text given.result}, given.ran_for,
       CONVERT(binary(16), given.node, 2), given.claimed_at
FROM OPENJSON(@P1) WITH (job char(32), seq bigint, state smallint, delay bigint, attempts int,
                         outcome smallint, error {long}, result {long}, ran_for bigint,
                         node char(32), claimed_at bigint) AS given;
IF @P2 = 0 SET LOCK_TIMEOUT {patience};
BEGIN TRANSACTION;
UPDATE {schema}.jobs
SET state = CASE WHEN jobs.cancel_requested = 1 THEN 6 ELSE settlement.state END,
    run_at = CASE WHEN jobs.cancel_requested = 1 OR settlement.delay IS NULL THEN jobs.run_at
                  ELSE @now + settlement.delay END,
    attempts = jobs.attempts + settlement.attempts,
    settled_seq = jobs.claim_seq,
    finished_at = CASE WHEN jobs.cancel_requested = 1 OR settlement.state >= 4 THEN @now END,
    ran_for_us = CASE WHEN settlement.state = 4 AND jobs.cancel_requested = 0
                      THEN settlement.ran_for_us END
OUTPUT inserted.id INTO @settled
FROM @settlement AS settlement{seek jobs}
WHERE jobs.id = settlement.job AND jobs.claim_seq = settlement.seq AND jobs.state + 0 = 3
  AND COALESCE(jobs.node, 0x00000000000000000000000000000000) = settlement.node
  AND COALESCE(jobs.claimed_at, 0) = settlement.claimed_at
  AND (@P2 = 1 OR jobs.flags & {awaited} = 0 OR (settlement.state < 4 AND jobs.cancel_requested = 0))
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO @ended (id, claim_seq, state, flags, node, claimed_at, cancel_requested)
SELECT id, claim_seq, state, flags, node, claimed_at, cancel_requested FROM {schema}.jobs
WHERE id IN (SELECT id FROM @settled);
INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, ran_for_us, node, error)
SELECT ended.id, ended.claim_seq,
       CASE WHEN ended.cancel_requested = 1 THEN 5 ELSE settlement.outcome END,
       COALESCE(ended.claimed_at, @now), @now, settlement.ran_for_us, ended.node,
       CASE WHEN ended.cancel_requested = 0 THEN settlement.error END
FROM @ended AS ended
JOIN @settlement AS settlement ON settlement.job = ended.id
WHERE ended.state <> 4;
UPDATE notes
SET result = COALESCE(settlement.result, notes.result),
    last_error = COALESCE(settlement.error, notes.last_error)
FROM @ended AS ended
INNER LOOP JOIN @settlement AS settlement ON settlement.job = ended.id
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = ended.id
WHERE ended.cancel_requested = 0
  AND (settlement.result IS NOT NULL OR settlement.error IS NOT NULL);
INSERT INTO {schema}.job_notes (job, result, last_error)
SELECT ended.id, settlement.result, settlement.error
FROM @ended AS ended
JOIN @settlement AS settlement ON settlement.job = ended.id
WHERE ended.cancel_requested = 0
  AND (settlement.result IS NOT NULL OR settlement.error IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM {schema}.job_notes AS notes WHERE notes.job = ended.id);
DELETE held
FROM @ended AS ended
INNER LOOP JOIN {schema}.job_data AS data ON data.id = ended.id
INNER LOOP JOIN {schema}.unique_keys AS held WITH (FORCESEEK, ROWLOCK) ON held.[key] = data.unique_key
WHERE ended.flags & {unique_key} = {unique_key} AND ended.state >= 4 AND held.job = ended.id;
COMMIT TRANSACTION;
IF @P2 = 0 SET LOCK_TIMEOUT {lock_timeout};
SELECT id, claim_seq, state, flags, node, claimed_at FROM @ended

-- name: find_settled
-- Returns for each of these jobs the claim that was last settled, and the current claim if the job
-- is running; 0 means none. [settle.repeat] [lane.promote] [link.decide] A claim that succeeded is
-- not in the history: its node and time are in the job's row. Primary keys.
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job.id, job.settled_seq, CASE WHEN job.state = 3 THEN job.claim_seq ELSE 0 END, job.flags,
       CASE WHEN attempt.job IS NULL THEN job.node ELSE attempt.node END,
       CASE WHEN attempt.job IS NULL THEN job.claimed_at ELSE attempt.claimed_at END,
       job.node, job.claimed_at
FROM {schema}.jobs AS job
LEFT JOIN {schema}.attempts AS attempt
    ON attempt.job = job.id AND attempt.seq = job.settled_seq
WHERE job.id IN (SELECT id FROM @wanted)

-- name: report_life
-- Restarts the stall timeouts of claims and stores their reports. Returns one row for each claim
-- still held. Their jobs have begun, so it deletes their expiries. [report.life] [report.progress]
-- [report.token] [report.cancel] [expiry.begun] Waits only briefly for locked jobs, so that one
-- locked job does not delay the others (held.rs). Primary keys, in order of id; no index has
-- last_report.
DECLARE @now bigint = {now};
DECLARE @report TABLE (job binary(16) NOT NULL, seq bigint NOT NULL, [percent] smallint NULL,
                       message nvarchar(max) NULL, [checkpoint] nvarchar(max) NULL,
                       node binary(16) NOT NULL, claimed_at bigint NOT NULL,
                       PRIMARY KEY (job, seq, node, claimed_at));
DECLARE @heard TABLE (id binary(16) NOT NULL PRIMARY KEY, flags smallint NOT NULL);
DECLARE @alive TABLE (id binary(16) NOT NULL PRIMARY KEY, claim_seq bigint NOT NULL,
                      node binary(16) NULL, claimed_at bigint NULL,
                      cancel_requested bit NOT NULL);
INSERT INTO @report (job, seq, [percent], message, [checkpoint], node, claimed_at)
SELECT CONVERT(binary(16), given.job, 2), given.seq, given.[percent],
       {text given.message}, {text given.[checkpoint]}, CONVERT(binary(16), given.node, 2),
       given.claimed_at
FROM OPENJSON(@P1) WITH (job char(32), seq bigint, [percent] smallint, message {long},
                         [checkpoint] {long}, node char(32), claimed_at bigint) AS given;
SET LOCK_TIMEOUT {patience};
BEGIN TRANSACTION;
UPDATE {schema}.jobs SET last_report = @now, flags = jobs.flags - (jobs.flags & {expires})
OUTPUT inserted.id, deleted.flags INTO @heard
FROM @report AS report{seek jobs}
WHERE jobs.id = report.job
  AND jobs.claim_seq = report.seq AND jobs.state + 0 = 3
  AND COALESCE(jobs.node, 0x00000000000000000000000000000000) = report.node
  AND COALESCE(jobs.claimed_at, 0) = report.claimed_at
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO @alive (id, claim_seq, node, claimed_at, cancel_requested)
SELECT id, claim_seq, node, claimed_at, cancel_requested FROM {schema}.jobs
WHERE id IN (SELECT id FROM @heard);
DELETE expiry
FROM @heard AS heard
INNER LOOP JOIN {schema}.expiries AS expiry WITH (FORCESEEK, ROWLOCK) ON expiry.job = heard.id
WHERE heard.flags & {expires} = {expires};
UPDATE notes
SET [percent] = COALESCE(report.[percent], notes.[percent]),
    message = COALESCE(report.message, notes.message),
    [checkpoint] = COALESCE(report.[checkpoint], notes.[checkpoint])
FROM @alive AS alive
INNER LOOP JOIN @report AS report ON report.job = alive.id AND report.seq = alive.claim_seq
    AND report.node = COALESCE(alive.node, 0x00000000000000000000000000000000)
    AND report.claimed_at = COALESCE(alive.claimed_at, 0)
INNER LOOP JOIN {schema}.job_notes AS notes WITH (FORCESEEK, ROWLOCK) ON notes.job = alive.id
WHERE report.[percent] IS NOT NULL OR report.[checkpoint] IS NOT NULL;
INSERT INTO {schema}.job_notes (job, [percent], message, [checkpoint])
SELECT report.job, report.[percent], report.message, report.[checkpoint]
FROM @report AS report
JOIN @alive AS alive ON alive.id = report.job AND alive.claim_seq = report.seq
    AND COALESCE(alive.node, 0x00000000000000000000000000000000) = report.node
    AND COALESCE(alive.claimed_at, 0) = report.claimed_at
WHERE (report.[percent] IS NOT NULL OR report.[checkpoint] IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM {schema}.job_notes AS notes WHERE notes.job = report.job);
COMMIT TRANSACTION;
SET LOCK_TIMEOUT {lock_timeout};
SELECT id, claim_seq, node, claimed_at, cancel_requested FROM @alive

-- name: running_jobs
-- Returns every running job in order of id, with its timeouts, its node, and when the oldest node
-- began: the input of ratchet_core::model::ReclaimRequest::judge. [reclaim.dead] [reclaim.unknown]
-- [reclaim.start] Reads jobs_running: as many rows as there are claims, however many jobs there
-- are. If readers wait for writers in this database, skips jobs that another transaction has
-- locked; the next sweep finds them.
DECLARE @now bigint = {now};
SELECT node.node, node.label, node.status, node.running, node.capacity, node.interval,
       node.started_at, node.last_seen, node.connections, node.cpu_percent, node.memory_bytes,
       node.roles, node.capabilities,
       @now, job.id, job.claim_seq, job.crash_count, job.cancel_requested, job.claimed_at,
       job.last_report, job.node, data.timeout, data.stall_timeout, job.flags,
       registry.since
FROM {schema}.jobs AS job WITH (ROWLOCK{passing})
CROSS JOIN (SELECT MIN(started_at) AS since FROM {schema}.nodes) AS registry
LEFT JOIN {schema}.nodes AS node ON node.node = job.node
LEFT JOIN {schema}.job_data AS data ON data.id = job.id AND job.flags & {timeouts} = {timeouts}
WHERE job.state = 3
ORDER BY job.id

-- name: reclaim_jobs
-- Takes claims back, with the effects that ratchet_core::model::ReclaimRequest::judge returned,
-- unless they have changed since the caller read them. Returns one row for each claim that it took
-- back. Skips jobs that would end while other jobs wait for their end, unless @P2: then the caller
-- applies the effects on the other jobs. [reclaim.requeue] [reclaim.once] [reclaim.exhausted]
-- [link.decide] With @P2, waits for locked jobs as long as the transaction allows; otherwise only
-- briefly, so that one locked job does not delay the others (held.rs). Primary keys, in order of
-- id, so that all calls lock in the same order.
DECLARE @now bigint = {now};
DECLARE @lost TABLE (job binary(16) NOT NULL PRIMARY KEY, seq bigint NOT NULL,
                     crash_count int NOT NULL, cancel_requested bit NOT NULL,
                     last_report bigint NULL, node binary(16) NULL, crashes int NOT NULL,
                     state smallint NOT NULL);
DECLARE @taken TABLE (id binary(16) NOT NULL PRIMARY KEY);
DECLARE @ended TABLE (id binary(16) NOT NULL PRIMARY KEY, claim_seq bigint NOT NULL,
                      state smallint NOT NULL, flags smallint NOT NULL, node binary(16) NULL,
                      claimed_at bigint NULL);
INSERT INTO @lost (job, seq, crash_count, cancel_requested, last_report, node, crashes, state)
SELECT CONVERT(binary(16), given.job, 2), given.seq, given.crash_count, given.cancel_requested,
       given.last_report, CONVERT(binary(16), given.node, 2), given.crashes, given.state
FROM OPENJSON(@P1) WITH (job char(32), seq bigint, crash_count int, cancel_requested bit,
                         last_report bigint, node char(32), crashes int, state smallint) AS given;
IF @P2 = 0 SET LOCK_TIMEOUT {patience};
BEGIN TRANSACTION;
UPDATE {schema}.jobs
SET state = lost.state, crash_count = lost.crashes,
    node = CASE WHEN lost.state = 3 THEN NULL ELSE jobs.node END,
    finished_at = CASE WHEN lost.state >= 4 THEN @now END
OUTPUT inserted.id INTO @taken
FROM @lost AS lost{seek jobs}
WHERE jobs.id = lost.job AND jobs.claim_seq = lost.seq AND jobs.state + 0 = 3
  AND jobs.crash_count = lost.crash_count AND jobs.cancel_requested = lost.cancel_requested
  AND (jobs.last_report = lost.last_report
       OR (jobs.last_report IS NULL AND lost.last_report IS NULL))
  AND (jobs.node = lost.node OR (jobs.node IS NULL AND lost.node IS NULL))
  AND (@P2 = 1 OR lost.state < 4 OR jobs.flags & {awaited} = 0)
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO @ended (id, claim_seq, state, flags, node, claimed_at)
SELECT id, claim_seq, state, flags, node, claimed_at FROM {schema}.jobs
WHERE id IN (SELECT id FROM @taken);
INSERT INTO {schema}.attempts (job, seq, outcome, claimed_at, ended_at, node)
SELECT id, claim_seq, 6, COALESCE(claimed_at, @now), @now, node FROM @ended WHERE state <> 3;
DELETE held
FROM @ended AS ended
INNER LOOP JOIN {schema}.job_data AS data ON data.id = ended.id
INNER LOOP JOIN {schema}.unique_keys AS held WITH (FORCESEEK, ROWLOCK) ON held.[key] = data.unique_key
WHERE ended.flags & {unique_key} = {unique_key} AND ended.state >= 4 AND held.job = ended.id;
COMMIT TRANSACTION;
IF @P2 = 0 SET LOCK_TIMEOUT {lock_timeout};
SELECT id, flags FROM @ended
