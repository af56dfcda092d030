-- Restarts the stall timeouts of claims and keeps what their bodies tell; one row comes back for
-- each that held. [report.life] [report.progress] [report.token] [report.cancel]
-- None is waited for for long: whoever holds one job in an open transaction holds no others up (held.rs).
-- Primary keys, in order of id; no index has last_report.
DECLARE @now bigint = {now};
DECLARE @report TABLE (job binary(16) NOT NULL, seq bigint NOT NULL, [percent] smallint NULL,
                       message nvarchar(max) NULL, [checkpoint] nvarchar(max) NULL,
                       node binary(16) NOT NULL, claimed_at bigint NOT NULL,
                       PRIMARY KEY (job, seq, node, claimed_at));
DECLARE @heard TABLE (id binary(16) NOT NULL PRIMARY KEY);
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
UPDATE {schema}.jobs SET last_report = @now
OUTPUT inserted.id INTO @heard
FROM @report AS report{seek jobs}
WHERE jobs.id = report.job
  AND jobs.claim_seq = report.seq AND jobs.state + 0 = 3
  AND COALESCE(jobs.node, 0x00000000000000000000000000000000) = report.node
  AND COALESCE(jobs.claimed_at, 0) = report.claimed_at
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO @alive (id, claim_seq, node, claimed_at, cancel_requested)
SELECT id, claim_seq, node, claimed_at, cancel_requested FROM {schema}.jobs
WHERE id IN (SELECT id FROM @heard);
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
