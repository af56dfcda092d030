-- What signals jobs wait, or waited, for; and whether it is too late
-- (ratchet_core::links::is_too_late). [signal.answer] [get.whole] Primary key of signals.
DECLARE @now bigint = {now};
DECLARE @wanted TABLE (id binary(16) NOT NULL PRIMARY KEY);
INSERT INTO @wanted (id) SELECT DISTINCT CONVERT(binary(16), value, 2) FROM OPENJSON(@P1);
SELECT job, [key], timeout, deadline, state, delivered_at, payload,
       CAST(CASE WHEN deadline <= @now THEN 1 ELSE 0 END AS bit)
FROM {schema}.signals
WHERE job IN (SELECT id FROM @wanted)
