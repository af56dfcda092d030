-- The first job with an idempotency key. [keys.idempotency] Primary key.
SELECT job FROM ratchet_idempotency_keys WHERE key = ?1
