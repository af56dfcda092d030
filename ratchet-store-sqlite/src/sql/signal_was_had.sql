-- Whether somebody has had a signal of this name. [signal.answer] ratchet_signals_key.
SELECT EXISTS (
    SELECT 1 FROM ratchet_signals INDEXED BY ratchet_signals_key WHERE key = ?1 AND state = 1)
