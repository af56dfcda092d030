-- The jobs whose signal did not come in time, the longest overdue first. [signal.expire]
-- [signal.limit] ratchet_signals_deadline, read in its order.
SELECT job FROM ratchet_signals INDEXED BY ratchet_signals_deadline
WHERE state = 0 AND deadline <= ?1
ORDER BY deadline, job
LIMIT ?2
