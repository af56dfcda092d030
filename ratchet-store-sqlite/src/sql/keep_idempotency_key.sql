-- Uses up an idempotency key. [keys.idempotency] [keys.race]
INSERT INTO ratchet_idempotency_keys (key, job, reserved_at) VALUES (?1, ?2, ?3)
