-- Lets a new job wait for a signal. [signal.wait]
INSERT INTO ratchet_signals (job, key, timeout, deadline) VALUES (?1, ?2, ?3, ?4)
