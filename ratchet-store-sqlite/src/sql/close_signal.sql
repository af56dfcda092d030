-- Notes that a job has ended without its signal. [signal.late] Primary key of ratchet_signals.
UPDATE ratchet_signals SET state = 2 WHERE job = ?1 AND state = 0
