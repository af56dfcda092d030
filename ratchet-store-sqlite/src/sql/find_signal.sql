-- What signal a job waits, or waited, for. [signal.answer] [get.whole] Primary key of ratchet_signals.
SELECT key, timeout, deadline, state, delivered_at, payload FROM ratchet_signals WHERE job = ?1
