-- The unfinished job that has a unique key. [keys.unique] [requeue.key] Primary key.
SELECT job FROM ratchet_unique_keys WHERE key = ?1
