-- The jobs that wait for a signal of this name, and for which it is not too late
-- (ratchet_core::links::is_too_late). [signal.deliver] [signal.late] ratchet_signals_key.
SELECT job FROM ratchet_signals INDEXED BY ratchet_signals_key
WHERE key = ?1 AND state = 0 AND deadline > ?2
ORDER BY job
