-- Moves waiting jobs from one state to another; those that end lose their unique keys, and their
-- signals come too late (flags: 1 it has a key, 8 it waits for others or for a signal). Within a
-- transaction. [act.respond] [cancel.waiting] [pause.job] [signal.late] Primary keys.
DECLARE @now bigint = {now};
DECLARE @change TABLE (job binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL);
DECLARE @moved TABLE (id binary(16) NOT NULL PRIMARY KEY, state smallint NOT NULL,
                      flags smallint NOT NULL);
INSERT INTO @change (job, state)
SELECT CONVERT(binary(16), given.job, 2), given.state
FROM OPENJSON(@P1) WITH (job char(32), state smallint) AS given;
UPDATE job
SET state = change.state, finished_at = CASE WHEN change.state >= 4 THEN @now END
FROM @change AS change
INNER LOOP JOIN {schema}.jobs AS job WITH (FORCESEEK, ROWLOCK) ON job.id = change.job;
INSERT INTO @moved (id, state, flags)
SELECT id, state, flags FROM {schema}.jobs WHERE id IN (SELECT job FROM @change);
UPDATE signal SET state = 2
FROM @moved AS moved
INNER LOOP JOIN {schema}.signals AS signal WITH (FORCESEEK, ROWLOCK) ON signal.job = moved.id
WHERE moved.flags & 8 = 8 AND moved.state >= 4 AND signal.state = 0;
DELETE held
FROM @moved AS moved
INNER LOOP JOIN {schema}.job_data AS data ON data.id = moved.id
INNER LOOP JOIN {schema}.unique_keys AS held WITH (FORCESEEK, ROWLOCK) ON held.[key] = data.unique_key
WHERE moved.flags & 1 = 1 AND moved.state >= 4 AND held.job = moved.id
