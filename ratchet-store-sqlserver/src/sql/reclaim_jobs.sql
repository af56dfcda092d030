-- Takes claims back, as ratchet_core::model::ReclaimRequest::effect says, unless something about
-- them has changed since they were judged; one row comes back for each. Jobs that end and for whose
-- end others wait are left alone unless @P2 says that they are followed.
-- [reclaim.requeue] [reclaim.once] [reclaim.exhausted] [link.decide]
-- None is waited for for long: whoever holds one job in an open transaction holds no others up (held.rs).
-- Primary keys, in order of id, so that two calls lock in one order.
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
  AND (@P2 = 1 OR lost.state < 4 OR jobs.flags & 52 = 0)
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
WHERE ended.flags & 1 = 1 AND ended.state >= 4 AND held.job = ended.id;
COMMIT TRANSACTION;
IF @P2 = 0 SET LOCK_TIMEOUT {lock_timeout};
SELECT id, flags FROM @ended
