-- Ends claims and says what becomes of their jobs; one row comes back for each that held.
-- [settle.effect] [settle.mixed] [settle.token] [settle.cancel] [settle.keys] [settle.history]
-- The values are those of ratchet_core::model::Settlement::effect. Whether cancellation was
-- requested is known only here, so what that function says then is here too: Cancelled (6, in the
-- history 5), no other due time, no error and no result, and the attempts counted as otherwise.
-- Jobs whose ends others wait for (flags: 4 in a lane, 16 linked to it, 32 in a batch) are left alone
-- unless @P2 says that they are followed.
-- Then they are waited for as long as the transaction says; otherwise, not for long: whoever holds one
-- job in an open transaction holds no others up (held.rs).
-- Primary keys; the tokens are read in order of id, so that two calls lock in one order.
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
                         outcome smallint, error {long}, result {long},
                         ran_for bigint, node char(32), claimed_at bigint) AS given;
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
  AND (@P2 = 1 OR jobs.flags & 52 = 0 OR (settlement.state < 4 AND jobs.cancel_requested = 0))
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
WHERE ended.flags & 1 = 1 AND ended.state >= 4 AND held.job = ended.id;
COMMIT TRANSACTION;
IF @P2 = 0 SET LOCK_TIMEOUT {lock_timeout};
SELECT id, claim_seq, state, flags, node, claimed_at FROM @ended
