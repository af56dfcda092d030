-- Delivers a signal to those of these jobs, which are locked, that wait for theirs and for which it
-- is not too late (ratchet_core::links::is_too_late). [signal.deliver] [signal.once] [signal.late]
-- Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
UPDATE {schema}.signals SET state = 1, delivered_at = @now, payload = @P2
OUTPUT inserted.job
FROM @wanted AS wanted{seek signals}
WHERE signals.job = wanted.id
  AND signals.state = 0 AND signals.deadline > @now
OPTION (FORCE ORDER, LOOP JOIN)
