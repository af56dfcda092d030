-- Delivers a signal to a job that waits for it. [signal.deliver] [signal.once]
-- Primary key of ratchet_signals.
UPDATE ratchet_signals SET state = 1, delivered_at = ?2, payload = ?3 WHERE job = ?1 AND state = 0
